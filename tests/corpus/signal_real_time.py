import os, signal
os.kill(os.getpid(), signal.SIGRTMIN + 3)
signal.pause()
