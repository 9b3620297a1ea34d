import os, sys, shutil
print([os.isatty(n) for n in range(3)])
for call in (os.get_terminal_size, lambda: os.ttyname(0), lambda: os.open("/dev/tty", os.O_RDWR), lambda: os.tcgetpgrp(0)):
    try:
        print(call())
    except OSError as error:
        print(error)
print(shutil.get_terminal_size())
