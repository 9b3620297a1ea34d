import atexit, sys
class Handler:
    def __call__(self):
        sys.exit(9)
    def __repr__(self):
        return "<handler>"
atexit.register(print, "still runs")
atexit.register(Handler())
sys.exit(1)
