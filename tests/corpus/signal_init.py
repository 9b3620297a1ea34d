import os, signal
for number in (0, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    try:
        os.kill(1, number)
    except PermissionError as error:
        print(error)
print("init is still there")
