import os, pathlib
print(os.getcwd(), pathlib.Path.cwd(), os.path.abspath("x"), os.curdir)
print(os.listdir(), os.access(".", os.W_OK))
os.mkdir("sub")
os.chdir("sub")
print(os.getcwd(), __file__, os.path.exists(__file__))
import sys
print(sys.path[0])
raise ValueError("from another directory")
