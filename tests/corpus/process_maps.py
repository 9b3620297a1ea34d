print(sorted({line.split()[-1] for line in open("/proc/self/maps") if "deleted" in line or "scratch" in line}))
