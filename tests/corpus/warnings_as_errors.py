import warnings
warnings.simplefilter("error")
try:
    warnings.warn("now an error", UserWarning)
except UserWarning as error:
    print(repr(error))
print(warnings.filters[0])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    warnings.warn("recorded")
    print(caught[0].message, caught[0].lineno, caught[0].filename)
compile("'\\d'", "x", "exec")
