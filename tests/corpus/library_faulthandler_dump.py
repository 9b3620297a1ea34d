import faulthandler, sys, re, os
print(faulthandler.is_enabled())
def f():
    with open("trace", "w") as file:
        faulthandler.dump_traceback(file=file)
f()
print(re.sub(r"0x[0-9a-f]+", "0xID", open("trace").read()))
faulthandler.enable(open("crash", "w"))
pid = os.fork()
if pid == 0:
    os.abort()
print(os.WTERMSIG(os.waitpid(pid, 0)[1]))
print(re.sub(r"0x[0-9a-f]+", "0xID", open("crash").read()))
