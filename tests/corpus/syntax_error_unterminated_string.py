print("first")
s = """never
closed
until the end
