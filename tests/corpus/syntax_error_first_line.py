def = 3
print("after")
