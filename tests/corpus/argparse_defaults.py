import argparse, sys
parser = argparse.ArgumentParser(description="Does a thing.")
parser.add_argument("--name", default="x")
print(parser.parse_args())
parser.print_usage()
parser.parse_args(["--bad"])
