import sys
try:
    sys.exit(True)
except SystemExit as error:
    print(repr(error.code))
sys.exit(2.5)
