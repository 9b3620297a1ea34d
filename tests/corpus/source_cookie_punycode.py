# coding: punycode
print('x')
