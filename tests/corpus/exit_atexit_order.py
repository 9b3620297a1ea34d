import atexit
for n in range(3):
    atexit.register(print, "atexit", n)
@atexit.register
def last():
    print("registered last, runs first")
atexit.unregister(last)
atexit.register(lambda: atexit.register(print, "registered while exiting"))
print("main ends")
