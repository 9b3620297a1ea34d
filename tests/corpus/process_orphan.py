import os, signal
# The program ends though a child of it holds its stdout and stderr open.
r, w = os.pipe()
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(w, b"x")
    while True:
        signal.pause()
os.read(r, 1)
print("parent ends")
