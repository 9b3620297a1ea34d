import threading
def hook(args):
    print("hook", args.exc_type.__name__, args.exc_value, args.thread.name)
threading.excepthook = hook
t = threading.Thread(target=lambda: 1 / 0, name="divider")
t.start()
t.join()
