import subprocess, sys, zipapp, pathlib
pathlib.Path("app").mkdir()
pathlib.Path("app/__main__.py").write_text("import sys\nprint('app', sys.argv, __name__, __file__)\n")
zipapp.create_archive("app", "app.pyz")
print(subprocess.run([sys.executable, "app.pyz", "x"], capture_output=True, text=True))
