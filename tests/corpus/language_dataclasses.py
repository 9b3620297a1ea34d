from dataclasses import dataclass, field, asdict, replace, FrozenInstanceError
@dataclass(frozen=True, order=True, slots=True)
class P:
    x: int
    tags: list = field(default_factory=list, compare=False)
print(P(1), asdict(P(2, ["a"])), P(1) < P(2), replace(P(1), x=9), P.__module__)
try:
    P(1).x = 2
except FrozenInstanceError as error:
    print(error)
@dataclass
class Bad:
    x: list = []
