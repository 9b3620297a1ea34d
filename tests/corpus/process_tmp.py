import os, tempfile
print(os.listdir("/tmp"), tempfile.gettempdir())
with tempfile.TemporaryDirectory() as folder:
    print(os.path.dirname(folder), os.path.isdir(folder))
print(os.path.exists(folder))
with tempfile.NamedTemporaryFile("w+") as file:
    file.write("x")
    file.seek(0)
    print(file.read())
with tempfile.TemporaryFile() as file:
    print(file.write(b"abc"))
