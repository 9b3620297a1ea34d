import sys
def hook(kind, value, tb):
    print("caught", kind.__name__, value, tb.tb_lineno, tb.tb_next)
    print("to stderr", file=sys.stderr)
sys.excepthook = hook
raise LookupError("told to the hook")
