"""Who may speak to the server over HTTP: programs on this machine that have the token, and nobody else."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mcp_sandbox.cli.token import read_token
from mcp_sandbox.errors import ConfigError
from tests.clients.http_server import MODERN_VERSION, TOKEN, HttpServer, modern, serving_http
from tests.clients.raw import INITIALIZE, configuration_file, environment

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = str(Path(sys.executable).with_name("mcp-sandbox"))
HELLO = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
LIST = modern("tools/list")
MODERN = {"MCP-Protocol-Version": MODERN_VERSION, "Mcp-Method": "tools/list"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    folder = tmp_path_factory.mktemp("http")
    with serving_http(configuration_file(folder, f"unix://{folder}/none.sock")) as serving:
        yield serving


def test_who_has_the_token_is_answered_in_both_eras(server: HttpServer) -> None:
    status, text = server.post(HELLO)
    assert status == 200
    assert '"name":"mcp-sandbox"' in text
    status, text = server.post(LIST, MODERN)
    assert status == 200
    assert "execute_python" in text


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}0",
        f"Bearer {TOKEN.upper()}",
        f"Basic {TOKEN}",
        TOKEN,
        "Bearer ÿ\xff",
    ],
)
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_who_has_not_is_told_nothing(authorization: str | None, era: str, server: HttpServer) -> None:
    headers = {"Authorization": authorization}
    status, text = (
        server.post(HELLO, headers) if era == "legacy" else server.post(LIST, {**MODERN, **headers})
    )
    assert status == 401
    assert "sandbox" not in text


def test_a_token_in_the_address_is_none(server: HttpServer) -> None:
    for path in (f"/mcp?token={TOKEN}", f"/mcp?access_token={TOKEN}"):
        assert server.post(HELLO, {"Authorization": None}, path=path)[0] == 401


@pytest.mark.parametrize(
    "path", ["/", "/sse", "/messages/", "/.well-known/oauth-protected-resource/mcp", "/docs"]
)
def test_nothing_else_is_served(path: str, server: HttpServer) -> None:
    assert server.post(HELLO, path=path)[0] == 404


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1"}, 421),
        ({"Host": "127.0.0.1:1"}, 421),
        ({"Host": "127.0.0.1.evil.example:{port}"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Origin": "http://localhost:{port}.evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_web_page_does_not_get_through_though_it_had_the_token(
    headers: dict[str, str], refused: int, era: str, server: HttpServer
) -> None:
    headers = {name: value.format(port=server.port) for name, value in headers.items()}
    status, _ = server.post(HELLO, headers) if era == "legacy" else server.post(LIST, {**MODERN, **headers})
    assert status == refused


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_this_machine_by_either_name_gets_through(name: str, server: HttpServer) -> None:
    host = f"{name}:{server.port}"
    assert server.post(HELLO, {"Host": host, "Origin": f"http://{host}"})[0] == 200


def test_a_body_that_is_too_large_is_refused_before_it_is_read(server: HttpServer) -> None:
    declared = {"Content-Length": str(65 << 20)}
    assert server.post(None, declared, body=b"{")[0] == 413
    # Who has no token is not read from at all.
    assert server.post(None, {**declared, "Authorization": None}, body=b"{")[0] == 401


def test_only_the_loopback_is_listened_on(server: HttpServer) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", server.port), timeout=5)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b'{"jsonrpc":"2.0","id":1}', b"[" * 10_000])
def test_garbage_is_refused_and_the_server_goes_on(body: bytes, server: HttpServer) -> None:
    assert 400 <= server.post(None, body=body)[0] < 500
    assert server.post(HELLO)[0] == 200


def test_what_is_no_http_harms_nobody(server: HttpServer) -> None:
    for data in (b"\0" * 100_000, b"GET " + b"a" * 100_000, b"SSH-2.0-x\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
    assert server.post(HELLO)[0] == 200


def start(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Start a server that must not come up."""
    configuration = configuration_file(folder, f"unix://{folder}/none.sock")
    return subprocess.run(
        [COMMAND, "serve", "--config", str(configuration), *arguments],
        env={**environment(folder), **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def token_file(folder: Path, text: str, mode: int = 0o600) -> str:
    file = folder / "token"
    file.write_text(text)
    file.chmod(mode)
    return str(file)


def test_without_a_token_nothing_is_served(tmp_path: Path) -> None:
    said = start(tmp_path, "--http", "--port", "0")
    assert said.returncode == 125
    assert said.stdout == ""
    assert "takes a token" in said.stderr
    assert "openssl rand -hex 32" in said.stderr


def refusal(file: str | None = None, **variables: str) -> str:
    """Read a token that must be refused, and return why."""
    with pytest.raises(ConfigError) as caught:
        read_token(Path(file) if file else None, variables)
    assert "openssl rand -hex 32" in caught.value.next_step or "Take one away" in caught.value.next_step
    return caught.value.message


def test_a_token_comes_from_a_file_or_from_the_environment(tmp_path: Path) -> None:
    assert read_token(Path(token_file(tmp_path, f"{TOKEN}\n")), {}) == TOKEN
    assert read_token(None, {"MCP_SANDBOX_HTTP_TOKEN": TOKEN}) == TOKEN
    assert "both name a token" in refusal(token_file(tmp_path, TOKEN), MCP_SANDBOX_HTTP_TOKEN=TOKEN)


def test_the_token_that_the_documents_make_is_taken(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "http.md").read_text("utf-8")
    [line] = re.findall(r"^\(umask .*$", page, re.MULTILINE)
    subprocess.run(
        ["/bin/bash", "-c", line], env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}, check=True
    )
    assert len(read_token(tmp_path / ".mcp-sandbox-token", {})) == 64


@pytest.mark.parametrize(
    "text", ["", "short", "x" * 31, "x" * 513, "two words and 32 letters in all 0", "é" * 40]
)
def test_a_token_that_could_be_guessed_or_cannot_be_sent_is_none(text: str, tmp_path: Path) -> None:
    for said in (refusal(token_file(tmp_path, text)), refusal(MCP_SANDBOX_HTTP_TOKEN=text)):
        assert "holds no token" in said
        assert not text or text not in said


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620])
def test_a_token_that_others_may_have_read_is_not_used(mode: int, tmp_path: Path) -> None:
    assert "open to other users" in refusal(token_file(tmp_path, TOKEN, mode))


def test_a_token_file_that_is_none_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    assert "cannot be read: no such file" in refusal(str(tmp_path / "nowhere"))
    assert "cannot be read: is a directory" in refusal(str(tmp_path))
    assert "holds no token" in refusal(str(tmp_path / "pipe"))


def test_a_token_is_never_on_the_command_line(tmp_path: Path) -> None:
    assert start(tmp_path, "--http", "--token", TOKEN).returncode == 2
    for arguments in (["--port", "0"], ["--token-file", "x"]):
        assert "are for --http" in start(tmp_path, *arguments).stderr


def test_a_port_that_is_taken_is_told_with_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = start(tmp_path, "--http", "--port", port, MCP_SANDBOX_HTTP_TOKEN=TOKEN)
    assert said.returncode == 125
    assert (
        f"port {port} of 127.0.0.1 cannot be had: address already in use. Name another with --port"
        in said.stderr
    )
