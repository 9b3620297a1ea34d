import sys
print(repr(sys.stdin.read()), repr(sys.stdin.readline()), list(sys.stdin))
print(sys.stdin.buffer.read(), sys.stdin.closed)
import os
print(os.read(0, 10))
