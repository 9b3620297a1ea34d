access = 'user'
if access != 'user‮ ⁦# check⁩ ⁦':
    print('trojan')
