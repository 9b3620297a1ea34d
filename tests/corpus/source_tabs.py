def f():
	if 1:
		return '	'
print(repr(f()))
def g():
	return	1 /	0
g()
