import subprocess, sys
print(subprocess.run([sys.executable, "-c", "import sys; print(repr(sys.stdin.read()))"], capture_output=True, text=True).stdout)
print(subprocess.run(["cat"], capture_output=True).stdout)
print(subprocess.run([sys.executable, "-"], input="print('from stdin', __name__, __file__ if '__file__' in dir() else None)", capture_output=True, text=True))
print(subprocess.run([sys.executable], capture_output=True, text=True))
