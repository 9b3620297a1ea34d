import os
print("before")
pid = os.fork()
if pid == 0:
    print("child", __name__)
    os._exit(0)
print(os.waitpid(pid, 0)[1])
print("parent")
