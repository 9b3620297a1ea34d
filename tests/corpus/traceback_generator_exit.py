def g():
    try:
        yield 1
    except GeneratorExit:
        print("closed")
        raise
    finally:
        print("finally")
it = g()
print(next(it))
raise GeneratorExit("uncaught")
