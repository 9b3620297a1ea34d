# type: ignore
x = []  # type: list[int]
print(x)
