class Meta(type):
    def __new__(mcs, name, bases, namespace, **kw):
        print("creating", name, sorted(k for k in namespace if not k.startswith("__")), kw)
        return super().__new__(mcs, name, bases, namespace)
class Base(metaclass=Meta, flag=1):
    def __init_subclass__(cls):
        print("subclass", cls.__qualname__, cls.__module__)
class Child(Base):
    x = 1
print(Child.__mro__, repr(Child), Child.__class__)
