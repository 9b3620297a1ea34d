try:
    1 / 0
except ZeroDivisionError as error:
    raise SystemExit(4) from error
