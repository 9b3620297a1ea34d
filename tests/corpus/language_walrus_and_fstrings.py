if (n := len("abcdef")) > 3:
    print(f"{n=} {n!r:>5} {n:#x} {3.14159:.2f} {'nested ' + f'{n}'} {{}}")
print([y for x in range(5) if (y := x * x) > 3], y)
print(f"{__name__=} {'ü'!a} {'日':*^6}")
