import sys
print(sys.flags)
print(sys._xoptions, sys.warnoptions, sys.dont_write_bytecode, sys.pycache_prefix)
print(sys.getswitchinterval(), sys.getrecursionlimit(), sys.getdlopenflags())
print(sys.implementation.cache_tag, sys.byteorder, sys.hash_info.algorithm, sys.thread_info)
