import threading, warnings
def old():
    warnings.warn("from a thread", DeprecationWarning)
t = threading.Thread(target=old)
t.start()
t.join()
exec("import warnings\nwarnings.warn('from exec')")
exec(compile("warnings.warn('named')", "main.py", "exec"))
