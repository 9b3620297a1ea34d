x = 5
if x is 5:
    print("same")
assert (x, "always true")
print("\d")
[1, 2][0, 1] if False else None
print(0x1for x in ())
