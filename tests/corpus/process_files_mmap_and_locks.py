import fcntl, mmap, os
with open("m", "w+b") as f:
    f.truncate(4096)
    with mmap.mmap(f.fileno(), 0) as m:
        m[:5] = b"hello"
    fcntl.flock(f, fcntl.LOCK_EX)
    print(f.read(5), os.path.getsize("m"))
os.symlink("m", "link"); os.link("m", "hard"); os.mkfifo("pipe")
print(os.readlink("link"), os.stat("m").st_nlink, os.stat("pipe").st_size)
m = mmap.mmap(-1, 100)
m.write(b"x")
print(m[:2])
