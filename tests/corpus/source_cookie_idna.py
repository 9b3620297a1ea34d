# coding: idna
print('x')
