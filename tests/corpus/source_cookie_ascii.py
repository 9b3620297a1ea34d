# coding: ascii
print('plain', __name__)
1/0
