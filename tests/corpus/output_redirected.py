import contextlib, io, os, sys
buffer = io.StringIO()
with contextlib.redirect_stdout(buffer), contextlib.redirect_stderr(sys.stdout):
    print("caught")
    print("to the old stdout", file=sys.stderr)
print(repr(buffer.getvalue()))
saved = os.dup(1)
os.dup2(2, 1)
print("on stderr")
os.dup2(saved, 1)
print("on stdout")
sys.stdout = open("log.txt", "w")
print("in the file")
sys.stdout.close()
sys.stdout = sys.__stdout__
print(open("log.txt").read())
