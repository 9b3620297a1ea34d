print('x')
1/0