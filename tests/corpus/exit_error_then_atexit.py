import atexit, sys
@atexit.register
def bye():
    print("atexit after the traceback", file=sys.stderr)
raise RuntimeError("the program's end")
