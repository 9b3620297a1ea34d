import os, signal
class TimesUp(Exception):
    pass
def handler(number, frame):
    raise TimesUp("alarm")
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.01)
signal.pause()
