# coding: utf-16
print('never')
