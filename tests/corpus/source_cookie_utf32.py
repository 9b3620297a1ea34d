# coding: utf-32
print('never')
