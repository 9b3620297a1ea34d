from concurrent.futures import ProcessPoolExecutor
import multiprocessing
def cube(n):
    return n ** 3
if __name__ == "__main__":
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        print(list(pool.map(cube, range(5))))
