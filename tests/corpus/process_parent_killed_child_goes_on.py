import os, signal
r, w = os.pipe()
if os.fork() == 0:
    os.close(r)
    os.write(w, b"x")
    while True:
        signal.pause()
os.read(r, 1)
print("parent is killed", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
