import sys
print(sys.argv, sys.orig_argv, len(sys.argv))
print(open("/proc/self/cmdline", "rb").read())
print(open("/proc/self/comm").read())
