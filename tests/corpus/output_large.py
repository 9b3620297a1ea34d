import sys
line = "0123456789abcdef" * 8
for n in range(2500):
    sys.stdout.write(f"{n:06d} {line}\n")
