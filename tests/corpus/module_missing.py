import subprocess, sys
for name in ("no_such_module", "os.path.nothing", "email", "json"):
    print(subprocess.run([sys.executable, "-m", name], capture_output=True, text=True))
