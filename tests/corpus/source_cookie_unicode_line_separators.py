# a # # coding: latin-1
print("ü 日本語 🐍", len("ü"), ascii("ü"))
