def counter():
    received = yield 1
    print("received", received)
    try:
        yield 2
    finally:
        print("closing")
    return 3
g = counter()
print(next(g), g.send("x"))
g.close()
def outer():
    result = yield from inner()
    print("inner gave", result)
def inner():
    yield "a"
    return "b"
print(list(outer()))
