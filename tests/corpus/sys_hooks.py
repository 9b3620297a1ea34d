import sys, threading, builtins
print(sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__)
print(sys.unraisablehook is sys.__unraisablehook__, sys.breakpointhook is sys.__breakpointhook__)
print(threading.excepthook is threading.__excepthook__, sys.gettrace(), sys.getprofile())
print(hasattr(sys, "ps1"), hasattr(sys, "last_value"), hasattr(sys, "__interactivehook__"))
print(sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__, sys.stdin is sys.__stdin__)
