print(1)
print(2)print(3)
if 1:    print(4)
    print(5)
1/0