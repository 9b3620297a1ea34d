# coding: latin-1
# coding: utf-8
print("ü 日本語 🐍", len("ü"), ascii("ü"))
