import os
out = open(1, "w", buffering=65536, closefd=False)
out.write("never flushed\n")
os._exit(0)
