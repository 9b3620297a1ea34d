"""An engine that speaks just enough of Docker's API to go wrong at the moment that a test chooses."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingUnixStreamServer
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 10.0


class HttpEngine(ThreadingUnixStreamServer):
    """Answers requests as told, and keeps what it was asked."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path: Path) -> None:
        self.asked: list[str] = []
        """Method and path of each request, without the version and the container's name."""
        self.changed = threading.Condition()
        self.info: dict[str, object] = {
            "ServerVersion": "27.0.1",
            "Runtimes": {"runc": {}, "runsc": {}},
            "SecurityOptions": ["name=seccomp,profile=builtin"],
        }
        self.warnings: list[str] = []
        """What creating a container comes with."""
        self.hold: dict[str, threading.Event] = {}
        """A request that waits until its event is set."""
        self.failing: set[str] = set()
        """Requests that fail."""
        self.answers: dict[str, tuple[int, str]] = {}
        """Requests that are answered with another status and these words."""
        self.auto_remove = False
        """Whether a container that is let go goes by itself."""
        self.containers: set[str] = set()
        super().__init__(str(path), Answer)
        self.url = f"unix://{path}"
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def stop(self) -> None:
        """Answer no more."""
        for event in self.hold.values():
            event.set()
        self.shutdown()
        self.thread.join(SECONDS)
        self.server_close()

    def until(self, request: str, times: int = 1) -> None:
        """Wait until that was asked so often; blocks."""
        with self.changed:
            came = self.changed.wait_for(lambda: self.asked.count(request) >= times, SECONDS)
        assert came, f"{request} was not asked: {self.asked}"


class Answer(BaseHTTPRequestHandler):
    """One connection to the engine."""

    protocol_version = "HTTP/1.1"
    server: HttpEngine

    def answer(self) -> None:
        path = urlsplit(self.path).path
        path = path[path.index("/", 1) :] if path.startswith("/v1.") else path
        name = next((part for part in path.split("/") if part.startswith("mcp-sandbox-")), "")
        asked = f"{self.command} {path.replace(f'/{name}', '') if name else path}"
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.server.changed:
            self.server.asked.append(asked)
            self.server.changed.notify_all()
        if held := self.server.hold.get(asked):
            held.wait(SECONDS)
        if asked in self.server.answers:
            status, words = self.server.answers[asked]
            self.say(status, {"message": words})
            return
        self.act("" if asked in self.server.failing else asked, name)

    do_GET = do_POST = do_DELETE = answer

    def act(self, asked: str, name: str) -> None:
        containers = self.server.containers
        match asked.split():
            case ["GET", "/version"]:
                self.say(200, {"ApiVersion": "1.44"})
            case ["GET", "/info"]:
                self.say(200, self.server.info)
            case ["GET", path] if path.startswith("/images/"):
                self.say(200, {"Id": "sha256:1", "Config": {}})
            case ["POST", "/containers/create"]:
                containers.add(self.path.partition("name=")[2])
                self.say(201, {"Id": "1", "Warnings": self.server.warnings})
            case ["POST", "/containers/attach"]:
                self.say(101)
                self.connection.recv(1)  # until the other side lets go
                self.close_connection = True
            case ["POST", "/containers/start"]:
                self.say(204)
            case ["POST", "/containers/wait"]:
                if not self.server.auto_remove:
                    self.say(500, {"message": "it does not go"})
                else:
                    self.say(
                        200 if name in containers else 404, {"StatusCode": 0, "message": "no such container"}
                    )
                    containers.discard(name)
            case ["DELETE", "/containers"]:
                status = 204 if name in containers else 404
                containers.discard(name)
                self.say(status)
            case _:
                self.say(500, {"message": "driver failed"})

    def say(self, status: int, body: object = None) -> None:
        content = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        if status == 101:
            self.send_header("Connection", "Upgrade")
            self.send_header("Upgrade", "tcp")
        elif status != 204:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def address_string(self) -> str:
        return "client"

    def log_message(self, format: str, *args: object) -> None:
        pass
