def wait():
    raise KeyboardInterrupt
try:
    wait()
finally:
    print("cleanup")
