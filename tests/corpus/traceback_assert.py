total = 3
assert total == 4, f"total is {total}"
