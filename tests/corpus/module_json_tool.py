import subprocess, sys
print(subprocess.run([sys.executable, "-m", "json.tool", "--sort-keys"], input='{"b": [1, 2], "a": "\\u00fc"}', capture_output=True, text=True))
print(subprocess.run([sys.executable, "-m", "json.tool"], input="{bad", capture_output=True, text=True))
