def failing(n):
    raise ValueError(f"task {n}")
errors = []
for n in range(3):
    try:
        failing(n)
    except ValueError as error:
        errors.append(error)
raise ExceptionGroup("several failed", [errors[0], ExceptionGroup("nested", errors[1:]), TypeError("plain")])
