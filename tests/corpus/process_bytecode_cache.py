import importlib, os, pathlib, sys
pathlib.Path("part.py").write_text("value = 41\n")
importlib.invalidate_caches()
import part
print(part.value, part.__file__, part.__cached__, part.__spec__.origin)
print(sorted(os.listdir()), os.listdir("__pycache__"))
