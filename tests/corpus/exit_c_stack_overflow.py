import sys
print("before")
# No RecursionError where the limit is out of reach: the C stack itself ends.
sys.setrecursionlimit(10**9)
def down(n):
    return sorted([n], key=down)
down(0)
