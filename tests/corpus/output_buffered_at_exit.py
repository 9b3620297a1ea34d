import os, sys
out = open(1, "w", buffering=65536, closefd=False)
out.write("flushed at exit\n")
raw = open(2, "wb", closefd=False)
raw.write(b"me too\n")
