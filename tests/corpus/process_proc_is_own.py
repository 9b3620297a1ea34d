# Refused to a process that inherited an undumpable agent's state.
import os
print(len(open("/proc/self/environ", "rb").read()) > 0)
fd = os.open("/proc/self/mem", os.O_RDONLY)
print(fd > 2)
print(os.stat("/proc/self/environ").st_uid == os.getuid())
print(os.readlink("/proc/self/cwd"), os.readlink("/proc/self/root"))
