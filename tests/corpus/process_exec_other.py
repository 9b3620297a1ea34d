import os, atexit
atexit.register(print, "never")
print("before")
os.execvp("sh", ["sh", "-c", "echo after; exit 8"])
