from concurrent.futures import ThreadPoolExecutor, as_completed
with ThreadPoolExecutor(3) as pool:
    print(list(pool.map(lambda n: n * n, range(10))))
    future = pool.submit(int, "x")
print(repr(future.exception()))
future.result()
