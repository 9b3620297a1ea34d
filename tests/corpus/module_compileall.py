import os, pathlib, subprocess, sys
pathlib.Path("lib").mkdir()
pathlib.Path("lib/good.py").write_text("x = 1\n")
pathlib.Path("lib/bad.py").write_text("x = = 1\n")
done = subprocess.run([sys.executable, "-m", "compileall", "-q", "lib"], capture_output=True, text=True)
print(done)
print(os.listdir("lib/__pycache__"))
print(subprocess.run([sys.executable, "-m", "py_compile", "main.py"], capture_output=True, text=True))
print(sorted(os.listdir("__pycache__")))
