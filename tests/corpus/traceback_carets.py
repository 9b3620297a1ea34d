data = {"a": {"b": None}}
def look(d):
    return d["a"]["b"]["c"] + d["x"]
look(data)
