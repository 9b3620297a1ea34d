import importlib, pathlib
pathlib.Path("typo.py").write_text("def f(:\n    pass\n")
importlib.invalidate_caches()
import typo
