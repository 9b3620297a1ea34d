print("never")
def f():
    break
