import subprocess, sys
print(subprocess.run([sys.executable, "-m", "calendar", "2024", "2"], capture_output=True, text=True).stdout)
print(subprocess.run([sys.executable, "-m", "base64", "-e"], input=b"hello", capture_output=True).stdout)
print(subprocess.run([sys.executable, "-m", "textwrap"], capture_output=True, text=True).returncode)
