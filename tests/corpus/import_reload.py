import importlib, pathlib, sys
sys.dont_write_bytecode = True
pathlib.Path("config.py").write_text("v = 1\n")
importlib.invalidate_caches()
import config
pathlib.Path("config.py").write_text("v = 22\n")
print(config.v, importlib.reload(config).v)
try:
    importlib.reload(sys.modules["__main__"])
except Exception as error:
    print(type(error).__name__, error)
