import os, time
for byte in "é日🐍".encode():
    os.write(1, bytes([byte]))
    os.write(2, bytes([byte]))
