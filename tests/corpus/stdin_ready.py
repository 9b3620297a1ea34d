import select, sys
r, w, x = select.select([sys.stdin], [], [], 0)
print(r == [sys.stdin], sys.stdin.isatty(), sys.stdin.readable())
