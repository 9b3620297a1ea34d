import threading
main_done = threading.Event()
def work():
    main_done.wait(5)
    threading.main_thread().join()
    print("thread ends after main", threading.main_thread().is_alive())
threading.Thread(target=work).start()
print("main ends")
main_done.set()
