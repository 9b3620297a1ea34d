"""What is kept of an engine, and until when."""

from __future__ import annotations

import json
import tempfile
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import TYPE_CHECKING, cast

import docker.errors
import pytest

from mcp_sandbox.engines.docker.address import Address
from mcp_sandbox.engines.docker.connection import Connection, EngineFacts
from mcp_sandbox.errors import EngineError, EngineUnreachable

if TYPE_CHECKING:
    from collections.abc import Iterator


class Engine(ThreadingUnixStreamServer):
    """Says of itself what a Docker engine says, and fails on demand."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self.asked: list[str] = []
        self.info: dict[str, object] = {"ServerVersion": "27.0.1", "Runtimes": {"runc": {}, "runsc": {}}}
        super().__init__(str(path), Answer)
        self.url = f"unix://{path}"
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def stop(self) -> None:
        self.shutdown()
        self.thread.join(10)
        self.server_close()


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        engine = cast("Engine", self.server)
        name = self.path.rpartition("/")[2]
        engine.asked.append(name)
        if name == "version":
            return self.answer(200, {"ApiVersion": "1.44"})
        if name == "info":
            return self.answer(200, engine.info)
        return self.answer(500, {"message": "driver failed"})

    def answer(self, status: int, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def address_string(self) -> str:
        return "client"

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder, "engine.sock")


@pytest.fixture
def engine(path: Path) -> Iterator[Engine]:
    engine = Engine(path)
    yield engine
    engine.stop()


@pytest.fixture
def connection(engine: Engine) -> Iterator[Connection]:
    connection = Connection(lambda: Address(engine.url, "test"))
    yield connection
    connection.close()


def facts(connection: Connection) -> EngineFacts:
    with connection.client() as client:
        return connection.facts(client)


def test_the_engine_is_asked_for_its_facts_once(engine: Engine, connection: Connection) -> None:
    assert facts(connection).runtimes == {"runc", "runsc"}
    assert facts(connection).version == "27.0.1"
    assert engine.asked == ["version", "info"]


def test_clients_are_used_again_and_never_by_two_at_once(connection: Connection) -> None:
    with connection.client() as first, connection.client() as second:
        assert first is not second
    with connection.client() as third:
        assert third in (first, second)


def test_a_client_that_met_a_failure_is_not_used_again(connection: Connection) -> None:
    with pytest.raises(EngineError, match="driver failed"), connection.client() as failing:
        failing.df()
    with connection.client() as client:
        assert client is not failing


def test_an_engine_that_comes_back_is_asked_anew(engine: Engine, connection: Connection) -> None:
    assert facts(connection).version == "27.0.1"
    with pytest.raises(EngineUnreachable), connection.client():
        raise docker.errors.DockerException("it is gone")
    engine.info["ServerVersion"] = "28.0.0"
    assert facts(connection).version == "28.0.0"


def test_an_engine_that_was_found_is_not_exchanged_for_another(engine: Engine) -> None:
    found: list[Address] = []

    def find() -> Address:
        found.append(Address(engine.url, f"search {len(found) + 1}"))
        return found[-1]

    connection = Connection(find)
    facts(connection)
    with pytest.raises(EngineUnreachable), connection.client():
        raise docker.errors.DockerException("it is gone")
    facts(connection)
    connection.close()
    assert connection.address.source == "search 1"
    assert len(found) == 1


def test_an_engine_that_was_not_found_is_looked_for_again(engine: Engine) -> None:
    searches: Iterator[Address | EngineError] = iter(
        [EngineUnreachable("nobody listens."), Address(engine.url, "the second search")]
    )

    def find() -> Address:
        found = next(searches)
        if isinstance(found, Exception):
            raise found
        return found

    connection = Connection(find)
    with pytest.raises(EngineUnreachable):
        facts(connection)
    assert facts(connection).version == "27.0.1"
    connection.close()


@pytest.mark.parametrize(
    ("options", "filters"),
    [
        (["name=seccomp,profile=default"], True),
        (["name=apparmor", "name=seccomp,profile=builtin"], True),
        (["name=seccomp,profile=/etc/docker/seccomp.json"], True),
        (["name=seccomp,profile=unconfined"], False),
        (["name=apparmor"], False),
        (None, False),
    ],
)
def test_only_a_seccomp_profile_filters_system_calls(
    engine: Engine, connection: Connection, options: list[str] | None, filters: bool
) -> None:
    engine.info["SecurityOptions"] = options
    assert facts(connection).filters_system_calls is filters
