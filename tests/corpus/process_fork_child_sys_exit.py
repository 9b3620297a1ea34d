import atexit, os, sys
atexit.register(lambda: print("atexit in", who))
who = "parent"
pid = os.fork()
if pid == 0:
    who = "child"
    sys.exit(11)
print(os.WEXITSTATUS(os.waitpid(pid, 0)[1]))
