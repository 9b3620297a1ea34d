import os, stat
info = os.stat(__file__)
print(stat.S_ISREG(info.st_mode), oct(stat.S_IMODE(info.st_mode)), info.st_nlink, info.st_size)
print(info.st_uid == os.getuid(), os.path.islink(__file__), os.access(__file__, os.W_OK), os.access(__file__, os.X_OK))
print(open(__file__).read() == open("main.py").read(), len(open(__file__, "rb").read()))
print(os.listdir("."))
