class Hook:
    def __call__(self):
        raise ValueError("in __del__")
    def __repr__(self):
        return "<del>"
class Loud:
    __del__ = Hook()
Loud()
kept = Loud()
print("goes on")
