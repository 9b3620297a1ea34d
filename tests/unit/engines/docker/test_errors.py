"""What goes wrong between us and an engine, made to happen, and what the person is told."""

from __future__ import annotations

import gc
import inspect
import json
import socket
import tempfile
import threading
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import docker.errors
import pytest
import requests
import requests.exceptions
import urllib3.exceptions

from mcp_sandbox.engines.docker.address import Address
from mcp_sandbox.engines.docker.connection import Connection
from mcp_sandbox.engines.docker.errors import translate, translated
from mcp_sandbox.errors import (
    EngineDenied,
    EngineError,
    EngineUnreachable,
    ImageMissing,
    ImageUnsuitable,
    RequestRefused,
    RuntimeMissing,
)
from tests.privileges import unprivileged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ADDRESS = "unix:///engine.sock"

ARGUMENTS: dict[str, tuple[object, ...]] = {
    "ContainerError": ("container", 1, "command", "image", "stderr"),
    "BuildError": ("reason", []),
}


def every(module: object, base: type[Exception]) -> list[Exception]:
    """Return one instance of every exception class of a library."""
    classes = [value for value in vars(module).values() if inspect.isclass(value) and issubclass(value, base)]
    return [make(cls) for cls in classes]


def make(cls: type[Exception]) -> Exception:
    try:
        return cls(*ARGUMENTS.get(cls.__name__, ("what it says",)))
    except TypeError:
        # urllib3's take a pool, a URL or a response first; a translation asks for none of these.
        error = cls.__new__(cls)
        Exception.__init__(error, "what it says")
        return error


@pytest.mark.parametrize(
    "error",
    [
        *every(docker.errors, Exception),
        *every(requests.exceptions, requests.exceptions.RequestException),
        *every(urllib3.exceptions, urllib3.exceptions.HTTPError),
    ],
    ids=lambda error: f"{type(error).__module__}.{type(error).__name__}",
)
def test_no_failure_of_the_sdk_comes_through_as_itself(error: Exception) -> None:
    with pytest.raises(EngineError) as caught, translated(ADDRESS):
        raise error
    assert caught.value.__cause__ is error
    assert caught.value.message
    assert caught.value.next_step


def test_failures_of_ours_pass_unchanged() -> None:
    refused = RequestRefused("no")
    with pytest.raises(RequestRefused) as caught, translated(ADDRESS):
        raise refused
    assert caught.value is refused


def test_a_mistake_in_our_code_is_not_blamed_on_the_engine() -> None:
    with pytest.raises(KeyError), translated(ADDRESS):
        raise KeyError("ours")


def answered(status: int, said: str) -> EngineError:
    response = requests.Response()
    response.status_code = status
    response._content = json.dumps({"message": said}).encode()
    with pytest.raises(EngineError) as caught, translated(ADDRESS):
        docker.errors.create_api_error_from_http_exception(requests.HTTPError("", response=response))
    return caught.value


@pytest.mark.parametrize(
    ("status", "said", "means"),
    [
        (404, "No such image: mcp-sandbox/standard:latest", ImageMissing),
        (400, "unknown or invalid runtime name: runsc", RuntimeMissing),
        (500, "Unknown runtime specified runsc", RuntimeMissing),
        (
            400,
            "OCI runtime create failed: runc create failed: unable to start container process: "
            'exec: "python3": executable file not found in $PATH: unknown',
            ImageUnsuitable,
        ),
        (409, "Conflict. The container name is already in use", EngineError),
        (500, "driver failed", EngineError),
    ],
)
def test_an_answer_is_told_as_what_it_means(status: int, said: str, means: type[EngineError]) -> None:
    assert type(answered(status, said)) is means


def test_a_missing_image_of_ours_comes_with_the_command_that_builds_it() -> None:
    assert "image build --minimal" in answered(404, "No such image: mcp-sandbox/minimal:latest").next_step
    assert "image build`" in answered(404, "No such image: mcp-sandbox/standard:latest").next_step
    assert "image build" not in answered(404, "No such image: python:3.13").next_step


@pytest.mark.parametrize(
    "said",
    [
        'invalid mount config for type "bind": bind source path does not exist: /Users/me',
        "Mounts denied: the path /Users/me is not shared from the host",
        "error while mounting volume '/v/_data': failed to mount local volume: mount /Users/me:/v/_data: "
        "no such file or directory",
    ],
)
def test_a_folder_that_the_engine_cannot_reach_can_be_copied(said: str) -> None:
    error = answered(400, said)
    assert "cannot mount a folder of this machine" in error.message
    assert 'workspace_transfer = "copy"' in error.next_step


def test_what_the_engine_says_is_kept_to_one_bounded_line() -> None:
    message = answered(500, "line\n" * 10_000).message
    assert "\n" not in message
    assert len(message) < 400


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short, as a socket's must be."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@contextmanager
def listening(listener: socket.socket, answer: Callable[[socket.socket], None]) -> Iterator[None]:
    """Give each connection to `answer`, then close it, until the scope is left."""

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                answer(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def ask(url: str) -> EngineError:
    """Ask the engine at this address for something and return what its failure means."""
    connection = Connection(lambda: Address(url, "test"))
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        with pytest.raises(EngineError) as caught, connection.client() as client:
            client.ping()
        error = caught.value
        # The SDK leaves a socket that did not connect to the garbage collector: let that come here.
        del caught
        error.__cause__ = error.__context__ = error.__traceback__ = None
        gc.collect()
    connection.close()
    return error


def bound(folder: Path) -> tuple[socket.socket, str]:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(folder / "engine.sock"))
    listener.listen()
    return listener, f"unix://{folder}/engine.sock"


def test_no_socket(folder: Path) -> None:
    error = ask(f"unix://{folder}/engine.sock")
    assert type(error) is EngineUnreachable
    assert f"{folder}/engine.sock" in error.message
    assert "no such file" in error.message
    assert "Start Docker" in error.next_step


def test_a_socket_that_nobody_listens_on(folder: Path) -> None:
    listener, url = bound(folder)
    listener.close()
    error = ask(url)
    assert type(error) is EngineUnreachable
    assert "connection refused" in error.message


def test_a_socket_of_another_user(folder: Path) -> None:
    listener, url = bound(folder)
    (folder / "engine.sock").chmod(0)
    folder.chmod(0o755)
    with listener, unprivileged():
        error = ask(url)
    assert type(error) is EngineDenied
    assert "docker" in error.next_step


def test_a_port_that_nobody_listens_on() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        error = ask(f"tcp://127.0.0.1:{taken.getsockname()[1]}")
    assert type(error) is EngineUnreachable
    assert "connection refused" in error.message


def test_a_name_that_does_not_resolve() -> None:
    assert type(ask("tcp://engine.invalid:2375")) is EngineUnreachable


def test_an_engine_that_hangs_up(folder: Path) -> None:
    listener, url = bound(folder)
    with listening(listener, lambda connection: None):
        assert type(ask(url)) is EngineUnreachable


def test_an_engine_that_hangs_up_in_the_middle_of_an_answer(folder: Path) -> None:
    listener, url = bound(folder)

    def half(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")

    with listening(listener, half):
        assert type(ask(url)) is EngineUnreachable


def test_something_that_is_no_engine(folder: Path) -> None:
    listener, url = bound(folder)

    def ssh(connection: socket.socket) -> None:
        connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
        connection.recv(65536)

    with listening(listener, ssh):
        assert type(ask(url)) is EngineUnreachable


def test_an_engine_that_never_answers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listener, url = bound(folder)
    monkeypatch.setattr("mcp_sandbox.engines.docker.connection.HTTP_SECONDS", 0.1)
    let_go = threading.Event()

    def keep_silent(connection: socket.socket) -> None:
        let_go.wait(10)

    with listening(listener, keep_silent):
        error = ask(url)
        let_go.set()
    assert type(error) is EngineUnreachable
    assert "in time" in error.message


def test_tls_where_none_is_spoken() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]

        def plain(connection: socket.socket) -> None:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        with listening(listener, plain):
            assert type(ask(f"https://127.0.0.1:{port}")) is EngineUnreachable


def test_a_translation_never_runs_in_circles() -> None:
    first, second = OSError("first"), OSError("second")
    first.__cause__, second.__cause__ = second, first
    assert isinstance(translate(first, ADDRESS), EngineUnreachable)
