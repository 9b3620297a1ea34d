import sys
for stream in (sys.stdin, sys.stdout, sys.stderr):
    print(stream.name, stream.mode, stream.encoding, stream.errors, stream.newlines, stream.isatty(), stream.fileno())
    print(stream.line_buffering, stream.write_through, type(stream).__name__, type(stream.buffer).__name__)
print(sys.stdout.writable(), sys.stdout.readable(), sys.stdout.seekable(), sys.stdin.readable(), sys.stdin.writable())
print(sys.getfilesystemencoding(), sys.getfilesystemencodeerrors(), sys.getdefaultencoding())
