print(1, 2, 3, sep="-", end="!\n", flush=True)
print(*"abc", sep="\n")
print(end="")
print()
import pprint
pprint.pprint({"b": list(range(30)), "a": {"x": "y" * 90}})
