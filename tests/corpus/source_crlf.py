print("ü 日本語 🐍", len("ü"), ascii("ü"))
print("""a
b""".encode())
def f():
    return "ü" + 1  # größe
f()
