import sys
seen = []
def trace(frame, event, arg):
    seen.append((frame.f_code.co_name, event, frame.f_lineno))
    return trace
def work(n):
    total = 0
    for i in range(n):
        total += i
    return total
sys.settrace(trace)
work(2)
sys.settrace(None)
for line in seen:
    print(*line)
