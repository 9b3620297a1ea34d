import os, signal, subprocess, sys
for s in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGABRT, signal.SIGHUP):
    code = f"import os; os.kill(os.getpid(), {int(s)}); import signal; signal.pause()"
    print(s.name, subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode)
print(subprocess.run([sys.executable, "-c", "raise SystemExit(300)"]).returncode)
