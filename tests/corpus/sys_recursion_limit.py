import sys
print(sys.getrecursionlimit())
def depth(n=0):
    try:
        return depth(n + 1)
    except RecursionError:
        return n
print(depth())
sys.setrecursionlimit(200)
print(depth())
sys.setrecursionlimit(3000)
print(depth())
try:
    sys.setrecursionlimit(0)
except ValueError as error:
    print(error)
