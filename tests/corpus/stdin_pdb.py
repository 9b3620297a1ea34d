def f():
    y = 1
    breakpoint()
    return y
f()
