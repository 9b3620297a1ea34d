import warnings
for f in warnings.filters:
    print(f)
