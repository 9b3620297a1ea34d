print(1)

print(2)
if 1:
    print(3)
    print(4)

1/0
