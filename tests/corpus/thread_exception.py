import threading
def fail():
    raise ValueError("in a thread")
t = threading.Thread(target=fail, name="worker")
t.start()
t.join()
t = threading.Thread(target=fail)
t.start()
t.join()
print("main goes on", threading.current_thread().name, threading.active_count())
