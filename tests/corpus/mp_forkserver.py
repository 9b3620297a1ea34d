import multiprocessing as mp
def work(conn):
    conn.send((__name__, mp.get_start_method(allow_none=True)))
    conn.close()
if __name__ == "__main__":
    context = mp.get_context("forkserver")
    ours, theirs = context.Pipe()
    p = context.Process(target=work, args=(theirs,))
    p.start()
    print(ours.recv())
    p.join()
    print(p.exitcode)
