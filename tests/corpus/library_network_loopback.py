import socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
peer, _ = server.accept()
client.sendall(b"ping")
print(peer.recv(4))
a, b = socket.socketpair()
a.send(b"x")
print(b.recv(1))
