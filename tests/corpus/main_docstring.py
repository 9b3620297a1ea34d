"""The docstring of the program."""

print(__doc__)
import sys
print(sys.modules["__main__"].__doc__)
