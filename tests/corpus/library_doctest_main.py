"""
>>> double(4)
8
>>> double("a")
'aa'
>>> 1 / 0
Traceback (most recent call last):
ZeroDivisionError: division by zero
>>> double(1)
3
"""
import doctest
def double(x):
    """
    >>> double(0)
    0
    >>> double(None)
    """
    return x * 2
print(doctest.testmod())
