import os, signal
def handler(number, frame):
    print(signal.Signals(number).name, frame.f_code.co_name, frame.f_lineno)
for s in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
    print(signal.signal(s, handler))
    os.kill(os.getpid(), s)
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.01)
signal.pause()
print("done")
