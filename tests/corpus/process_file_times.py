import os, time
info = os.stat(__file__)
print(0 <= time.time() - info.st_mtime + 1 < 60, info.st_mtime_ns <= time.time_ns(), os.path.getsize(__file__) == info.st_size)
print(info.st_blocks > 0, os.stat(".").st_nlink)
