import time
start = time.perf_counter(), time.monotonic(), time.process_time(), time.thread_time()
time.sleep(0.01)
print([b >= a for a, b in zip(start, (time.perf_counter(), time.monotonic(), time.process_time(), time.thread_time()))])
print(time.get_clock_info("monotonic").implementation, 1.7e9 < time.time() < 1e11)
