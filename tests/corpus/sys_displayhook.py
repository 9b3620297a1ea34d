import sys
sys.displayhook(3)
import builtins
print(builtins._)
sys.displayhook(None)
sys.displayhook("caf\u00e9 \U0001f40d")
def shown(value):
    print("shown:", value)
sys.displayhook = shown
for line in ("40 + 2", "'x'", "None"):
    exec(compile(line, "<typed>", "single"))
"a bare expression in a program prints nothing"
5
