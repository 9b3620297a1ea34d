import traceback, sys
def show():
    traceback.print_stack()
    traceback.print_stack(file=sys.stdout)
    print(traceback.extract_stack())
def fail():
    raise KeyError("k")
show()
try:
    fail()
except KeyError as error:
    traceback.print_exc()
    print(traceback.format_exc())
    print(traceback.format_exception_only(error))
    print([(f.filename, f.lineno, f.name, f.line) for f in traceback.extract_tb(error.__traceback__)])
