def divide(a, b):
    return a / b

def average(values):
    return divide(sum(values), len(values))

print("before")
print(average([1, 2, 3]))
print(average([]))
print("never")
