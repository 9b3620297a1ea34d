import sys
sys.exit(137)
