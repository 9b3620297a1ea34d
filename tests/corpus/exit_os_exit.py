import atexit, os, sys
atexit.register(print, "never")
print("unbuffered, so this is out")
sys.stderr.write("and this")
os._exit(5)
