"""A small internet on loopback: a web server with TLS for many names, and the proxy that alone knows where they are.

What a workspace is told of it is an upstream proxy and a certificate authority, as in a company's network. So the
names that runs reach need no resolver, and every byte takes the real way: sandbox, tunnel, upstream proxy, server.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import socket
import ssl
import subprocess
import tarfile
import threading
import zipfile
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import trustme

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMES = ("api.test", "index.test", "git.test", "registry.test", "big.test")
HELLO = b"hello from outside\n"
SECONDS = 60.0


class Internet:
    """What is served, who asked the proxy for what, and the authority that vouches for it."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.ca_bundle = folder / "company.pem"
        self.authority.cert_pem.write_to_path(str(self.ca_bundle))
        self.pages: dict[tuple[str, str], bytes] = {("api.test", "/"): HELLO, ("plain.test", "/"): HELLO}
        """Content by host and path."""
        self.moved: dict[tuple[str, str], str] = {}
        """Where the rest is said to be, by host and path."""
        self.echoes: set[tuple[str, str]] = set()
        """What answers with the headers that it was sent, by host and path."""
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        """Every request: host, path and headers, their names in small letters."""
        self.asked: list[str] = []
        """What the upstream proxy was asked to connect to."""
        self._servers: list[ThreadingHTTPServer] = []
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.authority.issue_cert(*NAMES).configure_cert(context)
        self.tls_port = self._serve(_pages(self), context)
        self.plain_port = self._serve(_pages(self), None)
        self.proxy_port = self._serve(_corporate(self), None)

    def _serve(self, handler: type[BaseHTTPRequestHandler], context: ssl.SSLContext | None) -> int:
        server = _Server(("127.0.0.1", 0), handler, context)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        self._servers.append(server)
        return server.server_address[1]

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def has_package(self, name: str) -> None:
        """Offer a package of Python that prints where it came from."""
        files = {
            f"{name}.py": "WHENCE = 'the index'\n",
            f"{name}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
            f"{name}-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        files[f"{name}-1.0.dist-info/RECORD"] = "".join(f"{path},,\n" for path in files)
        wheel = io.BytesIO()
        with zipfile.ZipFile(wheel, "w") as archive:
            for path, text in files.items():
                archive.writestr(path, text)
        file = f"/files/{name}-1.0-py3-none-any.whl"
        link = f'<a href="{file}#sha256={hashlib.sha256(wheel.getvalue()).hexdigest()}">{file.rpartition("/")[2]}</a>'
        self.pages["index.test", f"/simple/{name}/"] = f"<!DOCTYPE html><html>{link}</html>".encode()
        self.pages["index.test", file] = wheel.getvalue()

    def has_module(self, name: str) -> None:
        """Offer a package of Node's that says where it came from."""
        tarball = io.BytesIO()
        with tarfile.open(fileobj=tarball, mode="w:gz") as archive:
            for path, text in (
                ("package/package.json", json.dumps({"name": name, "version": "1.0.0"})),
                ("package/index.js", "module.exports = 'the registry'"),
            ):
                entry = tarfile.TarInfo(path)
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text.encode()))
        content = tarball.getvalue()
        dist = {
            "tarball": f"https://registry.test/{name}.tgz",
            "integrity": "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode(),
        }
        versions = {"1.0.0": {"name": name, "version": "1.0.0", "dist": dist}}
        packument = {"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": versions}
        self.pages["registry.test", f"/{name}"] = json.dumps(packument).encode()
        self.pages["registry.test", f"/{name}.tgz"] = content

    def has_repository(self, name: str, folder: Path) -> None:
        """Offer a git repository with one commit."""
        made = folder / name
        made.mkdir()
        (made / "README").write_text("cloned\n")
        by = ["-c", "user.name=n", "-c", "user.email=e@example.com"]
        for words in (["init", "-q"], ["add", "."], [*by, "commit", "-q", "-m", "one"]):
            subprocess.run(["git", *words], cwd=made, check=True, timeout=SECONDS)
        subprocess.run(["git", "repack", "-q", "-a", "-d"], cwd=made, check=True, timeout=SECONDS)
        subprocess.run(["git", "update-server-info"], cwd=made, check=True, timeout=SECONDS)
        for file in (made / ".git").rglob("*"):
            if file.is_file():
                path = file.relative_to(made / ".git").as_posix()
                self.pages["git.test", f"/{name}.git/{path}"] = file.read_bytes()


@contextmanager
def internet(folder: Path) -> Iterator[Internet]:
    """Serve until the scope is left."""
    made = Internet(folder)
    try:
        yield made
    finally:
        made.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[BaseHTTPRequestHandler],
        context: ssl.SSLContext | None,
    ) -> None:
        self.context = context
        super().__init__(address, handler)

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(SECONDS)
        with suppress(OSError):  # who does not trust us, or hangs up, is what some tests are about
            if not self.context:
                super().finish_request(request, client_address)
                return
            # Here, in the connection's own thread: a client may be slow, or not speak TLS.
            with self.context.wrap_socket(request, server_side=True) as connection:
                super().finish_request(connection, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


def _pages(world: Internet) -> type[BaseHTTPRequestHandler]:
    class Pages(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            host = self.headers["Host"].partition(":")[0]
            place = host, self.path.partition("?")[0]
            content = world.pages.get(place)
            world.requests.append(
                (host, self.path, {name.lower(): value for name, value in self.headers.items()})
            )
            if place in world.echoes:
                content = str(self.headers).encode()
            if location := world.moved.get(place):
                self.send_response(302)
                self.send_header("Location", location)
            else:
                self.send_response(200 if content is not None else 404)
            kind = "application/json" if host == "registry.test" else "text/html"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content or b"")

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    return Pages


def _corporate(world: Internet) -> type[BaseHTTPRequestHandler]:
    class Corporate(BaseHTTPRequestHandler):
        def do_CONNECT(self) -> None:
            world.asked.append(self.path)
            _, _, port = self.path.rpartition(":")
            ports = {"443": world.tls_port, "80": world.plain_port}
            if port not in ports:
                self.send_error(403)
                return
            with socket.create_connection(("127.0.0.1", ports[port]), SECONDS) as host:
                self.connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                up = threading.Thread(target=_pass_on, args=(self.connection, host), daemon=True)
                up.start()
                _pass_on(host, self.connection)
                up.join(SECONDS)

        def log_message(self, *_: object) -> None:
            pass

    return Corporate


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 18):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
