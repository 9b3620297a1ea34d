import sys
seen = []
def profile(frame, event, arg):
    seen.append((frame.f_code.co_name, event, getattr(arg, "__name__", arg)))
def work():
    return len([1, 2])
sys.setprofile(profile)
work()
sys.setprofile(None)
print(seen)
