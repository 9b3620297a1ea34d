import sys, threading
def stop():
    print("thread exits")
    sys.exit(7)
t = threading.Thread(target=stop)
t.start()
t.join()
print("program goes on")
