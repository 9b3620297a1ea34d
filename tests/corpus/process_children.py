import subprocess, sys
print(subprocess.run([sys.executable, "-c", "print('child'); import sys; print(sys.argv, __name__, sys.path[0])"], capture_output=True, text=True))
print(subprocess.run(["python3", "-c", "import sys; print('straight through', file=sys.stderr); sys.exit(3)"]).returncode)
print(subprocess.check_output("echo shell $0 $#; echo $HOME", shell=True, text=True))
subprocess.run([sys.executable, "-c", "1/0"], check=True)
