import pathlib, subprocess, sys
pathlib.Path("a.txt").write_text("a")
print(subprocess.run([sys.executable, "-m", "zipfile", "-c", "x.zip", "a.txt", "main.py"], capture_output=True, text=True))
print(subprocess.run([sys.executable, "-m", "zipfile", "-t", "x.zip"], capture_output=True, text=True))
import zipfile, tarfile
print(zipfile.ZipFile("x.zip").namelist())
with tarfile.open("x.tar.gz", "w:gz") as archive:
    archive.add("a.txt")
print(tarfile.open("x.tar.gz").getnames())
