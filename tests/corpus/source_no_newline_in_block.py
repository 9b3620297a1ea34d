if True:
    print('x')