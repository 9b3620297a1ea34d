import gc
print(gc.isenabled(), gc.get_threshold(), gc.get_debug(), gc.garbage)
class Cycle:
    def __del__(self):
        print("collected")
c = Cycle()
c.me = c
del c
gc.collect()
print("end")
