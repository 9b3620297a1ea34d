"""What runs inside the sandbox: standard library only, Python 3.8 or newer, imports nothing of ours."""
