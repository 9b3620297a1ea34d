def load():
    try:
        return {}["key"]
    except KeyError as error:
        raise ValueError("no such setting") from error

def start():
    try:
        load()
    except ValueError:
        int("during handling")

start()
