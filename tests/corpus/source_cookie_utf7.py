# coding: utf-7
print('+AOk-')
1/0
