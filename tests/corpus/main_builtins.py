import builtins
print(__builtins__ is builtins)
print(builtins.__import__.__name__, builtins.open.__module__, builtins.input, builtins.print)
print([name for name in ("exit", "quit", "copyright", "credits", "license", "help") if hasattr(builtins, name)])
print(sorted(set(dir(builtins)) - {"_"}) == sorted(dir(builtins)))
print(exit, quit)
