import multiprocessing as mp
def work(n):
    print("child", n, __name__, mp.current_process().name)
if __name__ == "__main__":
    mp.set_start_method("fork")
    for n in range(2):
        p = mp.Process(target=work, args=(n,))
        p.start()
        p.join()
        print(p.exitcode)
