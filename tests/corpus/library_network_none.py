import socket, urllib.request, urllib.error
try:
    socket.create_connection(("192.0.2.1", 80), timeout=1)
except OSError as error:
    print(type(error).__name__, error)
try:
    socket.getaddrinfo("example.com", 80)
except OSError as error:
    print(type(error).__name__, error)
urllib.request.urlopen("http://example.com/")
