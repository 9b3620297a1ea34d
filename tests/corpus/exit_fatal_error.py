import os, re
read, write = os.pipe()
child = os.fork()
if child == 0:
    os.dup2(write, 2)
    import ctypes
    ctypes.pythonapi.Py_FatalError.argtypes = [ctypes.c_char_p]
    ctypes.pythonapi.Py_FatalError(b"told by C")
os.close(write)
print(re.sub("0x[0-9a-f]+", "0xID", open(read).read()))
print(os.WTERMSIG(os.waitpid(child, 0)[1]))
