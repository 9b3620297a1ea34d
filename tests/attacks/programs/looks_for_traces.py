# Begins every run of the attack suite: whatever the runs before it left, or those beside it show, ends this one.
import os
import sys

found = []
for folder in ("/tmp", "/dev/shm", "/dev/mqueue", "/var/tmp", "/run/lock"):
    try:
        found += [folder + "/" + name for name in os.listdir(folder)]
    except OSError:
        pass
found += ["/scratch/" + name for name in os.listdir("/scratch") if name != "main.py"]
for kind in ("shm", "sem", "msg"):
    try:
        found += [kind for line in list(open("/proc/sysvipc/" + kind))[1:]]
    except OSError:
        pass
try:
    rows = [line.split(None, 7) for line in list(open("/proc/net/unix"))[1:]]
    found += [row[7].strip() for row in rows if len(row) > 7]
except OSError:
    pass
known = {"1", str(os.getpid()), str(os.getppid())}
found += ["process " + name for name in os.listdir("/proc") if name.isdigit() and name not in known]
if found:
    sys.exit("another run left: " + ", ".join(found))
