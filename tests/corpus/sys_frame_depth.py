import sys, inspect
print(len(inspect.stack()), inspect.stack()[0].filename, inspect.stack()[0].code_context)
print(sys._getframe().f_back)
def outer():
    return inner()
def inner():
    return [(f.function, f.lineno, f.code_context) for f in inspect.stack()]
print(outer())
sys._getframe(1)
