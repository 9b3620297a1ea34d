import fileinput
print(list(fileinput.input()))
import getpass, sys
try:
    print(input())
except EOFError as error:
    print("EOFError", error)
