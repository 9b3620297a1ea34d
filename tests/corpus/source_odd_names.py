ﬁ = 1
print(fi, 'ﬁ' in globals(), 'fi' in globals())
𝐱 = 2
print(x)
ª = 3
print(sorted(n for n in globals() if not n.startswith('_')))
