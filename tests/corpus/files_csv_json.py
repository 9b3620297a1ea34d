import csv, glob, json, pathlib
with open("t.csv", "w", newline="") as f:
    csv.writer(f).writerows([["a", "b"], [1, "x,y"], [2, 'q"q']])
print(pathlib.Path("t.csv").read_bytes(), list(csv.DictReader(open("t.csv", newline=""))))
json.dump({"ü": [1, None, True]}, open("t.json", "w"), ensure_ascii=False)
print(open("t.json").read(), glob.glob("*.csv"), sorted(glob.glob("**", recursive=True)))
