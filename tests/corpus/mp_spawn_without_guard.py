import multiprocessing as mp
def work():
    pass
mp.set_start_method("spawn")
p = mp.Process(target=work)
p.start()
p.join()
print(p.exitcode)
