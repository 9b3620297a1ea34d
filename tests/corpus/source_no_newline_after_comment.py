print('x')
# end