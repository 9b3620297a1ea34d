import contextvars
v = contextvars.ContextVar("v", default="outer")
def show():
    print(v.get())
context = contextvars.copy_context()
v.set("changed")
context.run(show)
show()
print(sorted(k.name for k in contextvars.copy_context()))
