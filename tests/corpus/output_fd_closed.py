import os, sys
print("before")
os.close(1)
try:
    print("after")
except OSError as error:
    print(error, file=sys.stderr)
