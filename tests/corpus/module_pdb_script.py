import subprocess, sys, pathlib
pathlib.Path("target.py").write_text("x = 1\nprint('ran', x)\n")
done = subprocess.run([sys.executable, "-m", "pdb", "target.py"], input="n\np x\nc\nq\n", capture_output=True, text=True)
print(done.returncode, done.stdout, done.stderr)
