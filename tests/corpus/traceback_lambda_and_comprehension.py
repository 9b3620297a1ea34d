table = [lambda v, k=k: v / k for k in range(2)]
print([f(1) for f in table])
