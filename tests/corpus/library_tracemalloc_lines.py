import tracemalloc
print(tracemalloc.is_tracing())
tracemalloc.start()
block = [bytearray(1000) for _ in range(100)]
top = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, __file__)]).statistics("lineno")[0]
print(top.traceback, top.size > 100_000)
print(tracemalloc.get_object_traceback(block[0]))
tracemalloc.stop()
