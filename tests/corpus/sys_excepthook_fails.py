import sys
def hook(kind, value, tb):
    raise TypeError("the hook itself fails")
sys.excepthook = hook
raise LookupError("the original")
