import atexit
class Handler:
    def __call__(self):
        raise ValueError("in atexit")
    def __repr__(self):
        return "<handler>"
atexit.register(print, "still runs")
atexit.register(Handler())
print("main ends")
