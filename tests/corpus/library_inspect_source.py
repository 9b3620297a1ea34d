import inspect, linecache, sys
def function(a, b: int = 2, *c, d, **e) -> str:
    # a comment inside
    return "x"
class Thing:
    """Doc."""
    def method(self):
        pass
print(inspect.getsource(function))
print(inspect.getsource(Thing))
print(inspect.getsource(sys.modules["__main__"]) == open(__file__).read())
print(inspect.signature(function), inspect.getfile(Thing), inspect.getmodule(function).__name__)
print(inspect.getsourcelines(Thing.method), inspect.getcomments(function))
print(linecache.getline(__file__, 1), inspect.currentframe().f_lineno)
print(inspect.getsource(lambda x: x))
