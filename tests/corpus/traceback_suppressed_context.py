try:
    1 / 0
except ZeroDivisionError:
    raise RuntimeError("without its cause") from None
