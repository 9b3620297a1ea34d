import os, sqlite3
with sqlite3.connect("data.db") as db:
    db.execute("pragma journal_mode=wal")
    db.execute("create table t(a, b)")
    db.executemany("insert into t values (?, ?)", [(n, f"ü{n}") for n in range(5)])
print(db.execute("select sum(a), group_concat(b) from t").fetchone())
db.close()
print(sorted(os.listdir()))
db = sqlite3.connect("data.db")
db.execute("select * from no_such_table")
