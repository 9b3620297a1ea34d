import importlib, sys, zipfile
with zipfile.ZipFile("lib.zip", "w") as archive:
    archive.writestr("zipped.py", "def f():\n    raise KeyError('from the archive')\nwhere = __file__\n")
sys.path.insert(0, "lib.zip")
importlib.invalidate_caches()
import zipped
print(zipped.where, zipped.__loader__.archive)
zipped.f()
