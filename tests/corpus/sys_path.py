import sys
print(sys.path)
print(sys.path[0], "" in sys.path)
print(sys.prefix, sys.exec_prefix, sys.base_prefix, sys.executable)
import sysconfig
print(sysconfig.get_path("stdlib"))
