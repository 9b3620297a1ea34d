x = 1
exec("x = 2; y = __name__")
print(x, y)
scope = {}
exec("z = 3\ndef f(): return z", scope)
print(scope["f"](), sorted(scope))
print(eval("x + 1"), eval("a", {"a": 5}), eval("lambda: x")())
code = compile("n = 1\nprint(n + x)", "<mine>", "exec")
exec(code)
print(code.co_filename, code.co_names)
def local():
    q = 1
    exec("q = 2")
    return q, eval("q")
print(local())
try:
    eval("x = 1")
except SyntaxError as error:
    print(error, error.filename, error.lineno, error.offset, error.text)
