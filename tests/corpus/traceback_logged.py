import logging
logging.basicConfig(format="%(levelname)s %(name)s %(pathname)s:%(lineno)d %(funcName)s %(message)s")
def work():
    logging.warning("warned")
    try:
        1 / 0
    except ZeroDivisionError:
        logging.exception("failed")
work()
logging.getLogger("app").error("named %s", "ü", stack_info=True)
