import multiprocessing as mp
print("imported as", __name__, __file__)
class Point:
    def __init__(self, x):
        self.x = x
def work(q, point):
    q.put((__name__, type(point).__module__, point.x, mp.current_process().name))
if __name__ == "__main__":
    context = mp.get_context("spawn")
    q = context.Queue()
    p = context.Process(target=work, args=(q, Point(3)))
    p.start()
    print(q.get())
    p.join()
    print(p.exitcode)
