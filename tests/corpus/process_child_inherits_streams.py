import subprocess, sys
print("one")
subprocess.run(["sh", "-c", "echo two; echo err two >&2"])
print("three")
import os
os.system("echo four; echo err four >&2")
print(os.popen("echo five").read())
