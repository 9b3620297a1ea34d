import multiprocessing as mp
def put(q, lock, value, n):
    with lock:
        value.value += n
    q.put(n)
if __name__ == "__main__":
    q, lock, value = mp.Queue(), mp.Lock(), mp.Value("i", 0)
    ps = [mp.Process(target=put, args=(q, lock, value, n)) for n in (1, 2, 3)]
    for p in ps: p.start()
    print(sorted(q.get() for _ in ps))
    for p in ps: p.join()
    print(value.value, [p.exitcode for p in ps])
