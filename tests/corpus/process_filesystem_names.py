import os, pathlib
for name in ("plain", "ünï", "日本語 🐍", "with\nnewline", "-rf", "a" * 255):
    pathlib.Path(name).write_text(name)
open(b"raw\xff", "w").close()
print(sorted(os.listdir(), key=os.fsencode))
try:
    open("a" * 256, "w")
except OSError as error:
    print(error.strerror)
