import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    with open("big", "wb", buffering=0) as file:
        while True:
            print(file.write(b"x" * 60))
except OSError as error:
    print(error)
