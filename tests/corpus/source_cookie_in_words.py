# this is about encoding: see the manual
print("ü 日本語 🐍", len("ü"), ascii("ü"))
