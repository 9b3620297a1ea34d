import importlib, pathlib
pathlib.Path("broken.py").write_text("def use():\n    return missing_name\n\nuse()\n")
importlib.invalidate_caches()
import broken
