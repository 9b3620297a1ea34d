import re, subprocess, sys, pathlib
pathlib.Path("small.py").write_text("x = [1, 'ü']  # note\n")
for name in ("tokenize", "ast", "dis"):
    done = subprocess.run([sys.executable, "-m", name, "small.py"], capture_output=True, text=True)
    print(done.returncode, done.stdout, done.stderr)
