x = 'a b cd'
print(len(x), x.splitlines())
raise ValueError(x)
