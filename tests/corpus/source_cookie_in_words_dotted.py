# decoding=strict. and more
print("ü 日本語 🐍", len("ü"), ascii("ü"))
