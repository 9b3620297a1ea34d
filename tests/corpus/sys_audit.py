import sys
seen = []
def hook(event, args):
    if event in ("open", "import", "exec", "compile"):
        seen.append(event)
sys.addaudithook(hook)
exec("1 + 1")
import colorsys
open("/dev/null").close()
print(sorted(set(seen)))
