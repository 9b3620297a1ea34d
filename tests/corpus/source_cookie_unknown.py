# coding: klingon
print('never')
