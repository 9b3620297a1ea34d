import resource
for name in sorted(n for n in dir(resource) if n.startswith("RLIMIT_")):
    soft, hard = resource.getrlimit(getattr(resource, name))
    print(name, type(soft).__name__, soft == hard or hard == resource.RLIM_INFINITY or soft <= hard)
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (32, hard))
files = []
try:
    for _ in range(100):
        files.append(open("/dev/null"))
except OSError as error:
    print(len(files), error)
