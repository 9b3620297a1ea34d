import pathlib, runpy, sys
pathlib.Path("other.py").write_text("import sys\nprint(__name__, __file__, sys.argv[0])\nresult = 5\n")
print(runpy.run_path("other.py")["result"])
print(runpy.run_path("other.py", run_name="__main__")["__name__"])
if __name__ == "__main__":
    print(sorted(k for k in runpy.run_module("main", run_name="again") if k.startswith("__")))
