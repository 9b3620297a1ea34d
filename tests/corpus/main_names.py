print(__name__, __file__, __doc__, __package__, __spec__, __builtins__.__name__)
print(type(__loader__).__name__, __loader__.name, __loader__.path)
print(sorted(name for name in globals() if name.startswith("__")))
print("__cached__" in globals() and __cached__)
