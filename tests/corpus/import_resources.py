import importlib.metadata, pkgutil
try:
    importlib.metadata.version("surely-not-installed")
except importlib.metadata.PackageNotFoundError as error:
    print(error)
print([m.name for m in pkgutil.iter_modules(["."])])
print(len(pkgutil.get_data("main", "main.py")))
