import logging, sys
logging.getLogger("silent").info("not shown")
logging.getLogger("last resort").warning("shown by lastResort")
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, format="%(levelname)s:%(module)s:%(filename)s:%(processName)s:%(threadName)s:%(message)s")
logging.debug("caf\u00e9")
logging.getLogger().handlers[0].setFormatter(logging.Formatter("{message} {nope}", style="{", validate=False))
logging.info("broken format")
