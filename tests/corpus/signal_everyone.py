import os, signal
print("before", flush=True)
child = os.fork()
if child == 0:
    signal.pause()
os.kill(-1, signal.SIGKILL)
pid, status = os.waitpid(child, 0)
print(os.WTERMSIG(status))
