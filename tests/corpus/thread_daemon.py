import threading
started = threading.Event()
def forever():
    print("daemon starts")
    started.set()
    threading.Event().wait()
threading.Thread(target=forever, daemon=True).start()
started.wait()
print("main ends")
