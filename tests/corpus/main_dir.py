print(dir())
