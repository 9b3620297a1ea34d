from __future__ import annotations
import typing
class Node:
    next: Node | None
    def link(self, other: Undefined) -> list[Node]: ...
print(Node.__annotations__, Node.link.__annotations__)
print(typing.get_type_hints(Node))
x: not_defined = 1
print(__annotations__)
print(annotations)
