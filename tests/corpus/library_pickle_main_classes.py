import copyreg, pickle, pickletools
class Point:
    def __init__(self, x):
        self.x = x
def function():
    return 5
data = pickle.dumps(Point(3), protocol=0)
print(data)
print(pickle.loads(data).x, pickle.loads(data).__class__ is Point)
print(pickle.dumps(function, protocol=0), pickle.loads(pickle.dumps(function)) is function)
try:
    pickle.dumps(lambda: 0)
except Exception as error:
    print(type(error).__name__, str(error).split(" at 0x")[0])
print(Point.__module__, function.__module__, Point.__qualname__)
