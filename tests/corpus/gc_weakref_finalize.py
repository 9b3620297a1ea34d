import weakref
class Thing:
    pass
t = Thing()
r = weakref.ref(t, lambda ref: print("gone"))
f = weakref.finalize(t, print, "finalized")
print(f.alive, r() is t)
del t
print(f.alive, r())
other = Thing()
weakref.finalize(other, print, "finalized at exit")
weakref.finalize(other, print, "later registered runs first")
print("end")
