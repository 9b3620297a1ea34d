import os
print(os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid())
try:
    os.setsid()
except PermissionError as error:
    print(error)
