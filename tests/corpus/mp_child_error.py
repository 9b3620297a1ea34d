import multiprocessing as mp
def fail():
    raise ValueError("in the child")
def leave():
    import sys
    sys.exit(4)
if __name__ == "__main__":
    for target in (fail, leave):
        p = mp.Process(target=target)
        p.start()
        p.join()
        print(p.exitcode)
