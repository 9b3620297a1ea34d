import re, subprocess, sys, timeit
done = subprocess.run([sys.executable, "-m", "timeit", "-n", "10", "-r", "1", "pass"], capture_output=True, text=True)
print(done.returncode, re.sub(r"[\d.]+ ?[num]?sec", "TIME", done.stdout), done.stderr)
print(timeit.timeit("x = 1", number=10) >= 0)
timeit.timeit("1/0", number=1)
