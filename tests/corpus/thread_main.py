import threading
print(threading.current_thread() is threading.main_thread(), threading.main_thread().name)
print(threading.active_count(), threading.get_native_id() == __import__("os").getpid())
print(threading.stack_size())
