import multiprocessing as mp
def square(n):
    return n * n
if __name__ == "__main__":
    print(mp.get_start_method())
    with mp.Pool(2) as pool:
        print(pool.map(square, range(10)))
        print(pool.apply(square, (12,)))
        print(list(pool.imap(square, range(3))))
