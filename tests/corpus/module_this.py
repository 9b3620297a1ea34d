import subprocess, sys
print(subprocess.run([sys.executable, "-m", "this"], capture_output=True, text=True).stdout)
import this
