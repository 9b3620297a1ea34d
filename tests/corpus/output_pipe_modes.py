import fcntl, os, stat
for fd in (0, 1, 2):
    print(fd, os.get_blocking(fd), os.get_inheritable(fd), bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND))
print(stat.S_ISFIFO(os.fstat(1).st_mode), stat.S_ISFIFO(os.fstat(2).st_mode))
print(os.path.sameopenfile(1, 2))
