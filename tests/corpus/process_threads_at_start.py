import os
print(len(os.listdir("/proc/self/task")))
print([line.split()[1] for line in open("/proc/self/status") if line.startswith(("Threads", "State", "TracerPid"))])
print(open("/proc/self/stat").read().split()[7])
