class Late:
    def __init__(self, name):
        self.name = name
    def __del__(self):
        print("del", self.name, __name__)
a = Late("a")
b = Late("b")
cycle = Late("cycle")
cycle.me = cycle
print("end of main")
