def raise_at(n):
    if n == 0:
        raise ValueError("root")
    try:
        raise_at(n - 1)
    except Exception as error:
        raise RuntimeError(f"level {n}") from error
raise_at(4)
