import importlib.util, pathlib, sys
pathlib.Path("odd-name.py").write_text("value = __name__\n")
spec = importlib.util.spec_from_file_location("odd", "odd-name.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(module.value, module.__spec__.origin)
print(importlib.util.find_spec("main").origin, importlib.util.find_spec("nothing"))
try:
    print(importlib.util.find_spec("__main__"))
except ValueError as error:
    print(error)
