try:
    from .pkg import x
except ImportError as error:
    print(error)
print(__package__)
from .. import up
