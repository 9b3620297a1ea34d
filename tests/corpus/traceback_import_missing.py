try:
    import surely_not_installed
except ModuleNotFoundError as error:
    print(error.name, error.path, error)
from os import no_such_name
