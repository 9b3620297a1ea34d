import os
print(os.umask(0o77) == 0o22, oct(os.umask(0o22)))
print(os.nice(0), os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0))
print(os.getuid(), os.getgid(), os.geteuid(), os.getegid(), os.getgroups(), os.getresuid())
print(os.getpid() != 1, os.getppid() > 0)
