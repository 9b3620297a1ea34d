# coding: ascii
print("ü 日本語 🐍", len("ü"), ascii("ü"))
