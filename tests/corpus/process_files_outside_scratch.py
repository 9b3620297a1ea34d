import errno
for path in ("/x", "/etc/x", "/usr/lib/x", "/root/x"):
    try:
        open(path, "w")
        print(path, "opened")
    except OSError as error:
        print(path, errno.errorcode[error.errno])
