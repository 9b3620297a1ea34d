import os, signal
print("before", flush=True)
os.kill(0, signal.SIGTERM)
signal.pause()
