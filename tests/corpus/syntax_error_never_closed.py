def f():
    return {
        "a": 1,

print(f())
