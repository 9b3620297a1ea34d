import sys
print("raw byte: \udcff")
sys.stdout.reconfigure(errors="strict")
try:
    print("\udcff")
except UnicodeEncodeError as error:
    print(error)
sys.stderr.write("escaped: \udc80 \ud800\n")
print("\ud83d")
