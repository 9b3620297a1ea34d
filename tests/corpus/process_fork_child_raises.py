import os
pid = os.fork()
if pid == 0:
    raise ValueError("in the forked child")
print(os.WEXITSTATUS(os.waitpid(pid, 0)[1]))
