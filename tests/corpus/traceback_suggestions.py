import collections
class Box:
    width = 1
try:
    Box().widht
except AttributeError as error:
    print(error, error.name)
colour = 1
print(color)
