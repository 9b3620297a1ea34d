import sys, gc
def hook(info):
    print("unraisable", info.exc_type.__name__, info.exc_value, info.err_msg, info.object.__qualname__)
sys.unraisablehook = hook
class Loud:
    def __del__(self):
        raise ValueError("from __del__")
Loud()
gc.collect()
print("still here")
