import enum, typing, collections
class Color(enum.Enum):
    RED = 1
    BLUE = enum.auto()
print(Color.RED, repr(Color.BLUE), list(Color), Color["RED"], Color(2))
class T(typing.NamedTuple):
    a: int
    b: str = "x"
print(T(1), typing.get_type_hints(T), collections.Counter("abca").most_common(1))
Color(9)
