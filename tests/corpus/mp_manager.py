import multiprocessing as mp
def add(d, k):
    d[k] = k * 2
if __name__ == "__main__":
    with mp.Manager() as manager:
        d = manager.dict()
        p = mp.Process(target=add, args=(d, 4))
        p.start()
        p.join()
        print(dict(d))
