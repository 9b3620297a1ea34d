def g():
    try:
        yield
    finally:
        print("generator closed")
it = g()
next(it)
print("end of main")
