print('[31m')
x = 'ab'
print(len(x))
