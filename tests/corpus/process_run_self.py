import subprocess, sys
if __name__ == "__main__" and len(sys.argv) == 1:
    print(subprocess.run([sys.executable, __file__, "child"], capture_output=True, text=True))
    print(subprocess.run([sys.executable, "-m", "main", "child"], capture_output=True, text=True))
    print(subprocess.run([sys.executable, "-c", "import main"], capture_output=True, text=True))
else:
    print(__name__, __file__, __spec__ and __spec__.name, sys.argv)
