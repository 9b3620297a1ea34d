import multiprocessing as mp
def fail(n):
    return 1 / n
if __name__ == "__main__":
    with mp.Pool(1) as pool:
        pool.map(fail, [1, 0])
