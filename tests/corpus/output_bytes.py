import os, sys
print("text")
sys.stdout.buffer.write(bytes(range(256)))
sys.stdout.buffer.flush()
os.write(1, b"\xff\xfe\x00direct\r\n")
os.write(2, b"\x80\x81 to stderr")
sys.stderr.buffer.write(b"\xc3")
sys.stderr.buffer.write(b"\xa9")
