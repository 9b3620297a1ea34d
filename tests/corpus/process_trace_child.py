# A debugger works on one's own child: ptrace needs a dumpable target.
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
pid = os.fork()
if pid == 0:
    signal.pause()
    os._exit(0)
ctypes.set_errno(0)
result = libc.ptrace(16, pid, 0, 0)
print(result, os.strerror(ctypes.get_errno()))
os.kill(pid, signal.SIGKILL)
