import sys
for n in range(100):
    print("out", n)
    print("err", n, file=sys.stderr)
