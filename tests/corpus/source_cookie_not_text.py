# coding: rot13
print('never')
