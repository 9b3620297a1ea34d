print("question follows")
name = input("name? ")
print("never")
