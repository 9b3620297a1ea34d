import queue, threading
q = queue.Queue()
local = threading.local()
local.x = 1
def consume():
    while (item := q.get()) is not None:
        print("got", item, hasattr(local, "x"))
t = threading.Thread(target=consume)
t.start()
for n in range(3):
    q.put(n)
q.put(None)
t.join()
