import os
print({name: os.environ.get(name) for name in ("HOME", "LANG", "PYTHONUNBUFFERED", "PWD", "PATH", "PYTHONPATH", "PYTHONHASHSEED", "LC_ALL", "TERM", "TZ", "USER", "SHLVL", "_")})
print(os.path.expanduser("~"), os.path.expandvars("$HOME/x"))
os.environ["ADDED"] = "ü"
print(os.popen("echo $ADDED").read())
del os.environ["ADDED"]
print(os.getenv("ADDED"), os.environb.get(b"ADDED"))
