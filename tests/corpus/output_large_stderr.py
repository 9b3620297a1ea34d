import sys
line = "fedcba9876543210" * 8
for n in range(2500):
    sys.stderr.write(f"{n:06d} {line}\n")
    if n % 500 == 0:
        print(n)
