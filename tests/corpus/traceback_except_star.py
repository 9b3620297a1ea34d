try:
    raise ExceptionGroup("both", [ValueError(1), TypeError("two"), OSError(3, "three")])
except* ValueError as group:
    print(group.exceptions)
except* OSError as group:
    print(group.exceptions)
