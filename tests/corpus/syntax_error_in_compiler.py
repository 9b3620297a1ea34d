def f():
    print(x)
    global x
return 5
