import signal
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted, goes on")
signal.raise_signal(signal.SIGINT)
print("never")
