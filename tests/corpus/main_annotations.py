print("__annotations__" in globals())
print(__annotations__)
x: int = 1
y: "str"
print(__annotations__, "y" in globals())
