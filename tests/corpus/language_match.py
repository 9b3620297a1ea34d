def describe(value):
    match value:
        case {"kind": "circle", "r": r, **rest}: return f"circle {r} {rest}"
        case [first, *others] if others: return f"list {first} {others}"
        case str() | bytes() as text: return f"text {text!r}"
        case int(n): return f"int {n}"
        case None: return "none"
        case _: return "other"
for v in ({"kind": "circle", "r": 2, "c": 1}, [1, 2, 3], [1], "x", b"y", 5, None, 2.5):
    print(describe(v))
