def f(*args, **kwargs):
    return args
value = (
    f(1,
      2)
    + f(3,
        key=4)
    + {"k": 1}[
        "missing"
    ]
)
