# coding: cp1252
print("Á")
