import functools
def logged(f):
    @functools.wraps(f)
    def wrapper(*args):
        print("call", f.__name__)
        return f(*args)
    return wrapper
@logged
@logged
def fail(x):
    raise IndexError(x)
fail(1)
