import os, sys
block = bytes(range(32, 127)) * 4000
sent = 0
while sent < len(block):
    sent += os.write(1, block[sent:])
print()
print("x" * 200_000)
sys.stderr.write("y" * 200_000)
