import importlib, os, pathlib
os.makedirs("pkg/sub")
pathlib.Path("pkg/__init__.py").write_text("from . import part\nprint('init of', __name__, __path__)\n")
pathlib.Path("pkg/part.py").write_text("print('part of', __package__)\n")
pathlib.Path("pkg/__main__.py").write_text("import sys\nprint('main of', __package__, sys.argv)\n")
os.makedirs("spacey/inner")
pathlib.Path("spacey/inner/leaf.py").write_text("name = __name__\n")
importlib.invalidate_caches()
import pkg
import spacey.inner.leaf
print(spacey.inner.leaf.name, spacey.__file__, list(spacey.__path__))
import subprocess, sys
print(subprocess.run([sys.executable, "-m", "pkg", "x"], capture_output=True, text=True))
print(subprocess.run([sys.executable, "pkg"], capture_output=True, text=True))
