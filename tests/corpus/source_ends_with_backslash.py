print('x')
\