import importlib, pathlib
pathlib.Path("colorsys.py").write_text("print('the local one')\n")
importlib.invalidate_caches()
import colorsys
print(colorsys.__file__)
