print(1)
print(2)
if 1:
  1/0
