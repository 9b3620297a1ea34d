"""Secrets go into a program's environment and nowhere else: not into what comes back, the record, a log or Docker."""

from __future__ import annotations

import base64
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from mcp_sandbox.audit.folder import Folder
from mcp_sandbox.audit.query import reading
from mcp_sandbox.config.toml import parse
from tests.clients.raw import configuration_file, server_command, serving
from tests.engine.sandboxes import SLEEP, sleeping

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from docker import APIClient

    from tests.clients.raw import RawClient

pytestmark = pytest.mark.engine

VALUE = 'Zx9"s3cr3t/Qw+7=ümlaut&8\\k'
KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqh7\nkiG9w0BAQEFAASC99\n-----END KEY-----"
SMALL = {"memory": "128MiB", "scratch_size": "16MiB", "tmp_size": "16MiB", "shm_size": "16MiB"}


def forms(value: bytes) -> Iterator[bytes]:
    """Yield the forms that the documents promise to take out, by other means than the product's."""
    yield value
    yield value[::-1]
    yield value.hex().encode()
    yield value.hex().upper().encode()
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + value)
        core = encoded[4 if before else 0 :].rstrip(b"=")[:-1]
        yield core
        yield core.translate(bytes.maketrans(b"+/", b"-_"))
    yield quote(value, safe="").encode()
    yield json.dumps(value.decode()).encode()[1:-1]
    yield repr(value.decode()).encode()[1:-1]
    yield value.decode()[::-1].encode()
    yield value.decode().upper().encode()


ALL_FORMS = {form for value in (VALUE.encode(), KEY.encode()) for form in forms(value)}
ALL_FORMS |= {line for line in KEY.encode().splitlines() if b"KEY" not in line}

PRINTS = r"""
import base64, binascii, json, os, sys, urllib.parse
for name in "API_KEY", "PEM":
    text = os.environ[name]
    value = text.encode()
    said = [value, value[::-1], value.hex().encode(), value.hex().upper().encode(),
        urllib.parse.quote(text, safe="").encode(), urllib.parse.quote_plus(text).encode(),
        json.dumps(text).encode(), json.dumps(text, ensure_ascii=False).encode(), repr([text, value]).encode(),
        text[::-1].encode(), text.upper().encode(), text.lower().encode()]
    for n in range(3):
        said += [base64.b64encode(b"x" * n + value + b"y"), base64.urlsafe_b64encode(b"x" * n + value)]
    for fd in 1, 2:
        for form in said:
            os.write(fd, b"<" + form + b">\n")
        for form in said:  # a byte at a time
            for byte in form:
                os.write(fd, bytes([byte]))
            os.write(fd, b"\n")
"""


@pytest.fixture
def configuration(engine_host: str, tmp_path: Path) -> Path:
    (tmp_path / "api_key").write_text(VALUE + "\n")
    (tmp_path / "pem").write_text(KEY + "\n")
    file = configuration_file(tmp_path, engine_host, output_limit="4KiB", **SMALL)
    file.write_text(
        f"{file.read_text()}\n[workspaces.w]\noutput_limit = 65536\n[workspaces.small]\n"
        + "".join(
            f"[workspaces.{name}.secrets]\n"
            f'API_KEY = {{ file = "{tmp_path}/api_key" }}\n'
            f'PEM = {{ command = ["cat", "{tmp_path}/pem"] }}\n'
            for name in ("w", "small")
        )
    )
    assert parse(file.read_bytes(), str(file))
    return file


@asynccontextmanager
async def server(configuration: Path, workspace: str = "w") -> AsyncIterator[RawClient]:
    """A server, which must have left no form of a secret anywhere when it has ended."""
    async with serving(
        configuration, command=[*server_command(configuration), "--workspace", workspace]
    ) as client:
        yield client
    said = "\n".join(json.dumps(message, ensure_ascii=False) for message in client.messages).encode()
    assert_free(said + b"\n".join(json.dumps(message).encode() for message in client.messages), "the answers")
    assert_free(client.stderr.encode(), "the server's stderr")
    audit = configuration.parent / "audit"
    files = [file for file in audit.rglob("*") if file.is_file()]
    assert any(file.name == "record.sqlite3" for file in files)
    for file in files:
        assert_free(file.read_bytes(), file.name)


def assert_free(data: bytes, where: str) -> None:
    for form in ALL_FORMS:
        assert form not in data, f"{form!r} in {where}"


async def test_a_program_has_its_secrets_and_no_stated_form_of_them_comes_back(configuration: Path) -> None:
    async with server(configuration) as client:
        code = f"import os; print(os.environ['API_KEY'] == {VALUE[::2]!r} + '', len(os.environ['API_KEY']))"
        assert (await client.python(code))["stdout"] == f"False {len(VALUE)}\n"
        told = await client.shell('printf %s "$PEM" | wc -c')
        assert told["stdout"].strip() == str(len(KEY))
        result = await client.python(PRINTS)
        assert result["exit_code"] == 0
        for stream in "stdout", "stderr":
            assert_free(result[stream].encode(), stream)
            assert result[stream].count("[secret API_KEY]") >= 26
            assert result[stream].count("[secret PEM]") >= 26
        traceback = await client.python("import os\nraise ValueError(os.environ['API_KEY'])")
        assert "ValueError: [secret API_KEY]" in traceback["stderr"]
        assert traceback["stderr_bytes"] > 0


async def test_neither_half_of_a_secret_is_left_where_output_was_cut(configuration: Path) -> None:
    head = 3072
    secret = len(VALUE.encode())
    async with server(configuration, "small") as client:
        for offset in (1, 5, secret // 2, secret - 5):
            code = (
                "import os; s = os.environ['API_KEY'].encode()\n"
                f"os.write(1, b'.' * {head - offset} + s + b'.' * 9000 + s * 200 + b'end')"
            )
            result = await client.python(code)
            written = head - offset + secret * 201 + 9003
            assert result["stdout_bytes"] == written  # the program's own count
            kept = await client.call("read_artifact", run_id=result["run_id"], path="stdout.txt")
            text = kept["content"][0]["text"]
            assert_free(text.encode(), "stdout.txt")
            for length in range(4, secret):
                assert VALUE.encode()[:length] + b"\n" not in text.encode()
                assert b"\n" + VALUE.encode()[-length:] not in text.encode()
            assert text.rstrip().endswith("end") or "[secret API_KEY]" in text
        # A tail that follows at once holds the other half, and no mark stands there twice.
        result = await client.python(
            f"import os; os.write(1, b'.' * {head - 9} + os.environb[b'API_KEY'] + b'!')"
        )
        assert result["stdout"].endswith(".[secret API_KEY]!")
        assert result["stdout"].count("[secret") == 1
        assert not result["truncated"]


async def test_a_file_that_holds_a_secret_stays_inside_and_the_reason_names_it(configuration: Path) -> None:
    code = r"""
import base64, os
s = os.environb[b"API_KEY"]
def make(name, data):
    with open(name, "wb") as file:
        file.write(data)
make(b"plain", b"x" * 100 + s)
for n in range(-40, 40, 7):  # wherever the pieces meet in which it comes out
    make(b"large%d" % n, b"x" * ((1 << 16) + n) + s + b"x" * (1 << 20))
make(b"base64", base64.b64encode(b"ab" + s))
make(b"reversed", s[::-1])
make(os.environb[b"PEM"].splitlines()[1], b"by its name")
make(b"good", b"nothing")
"""
    async with server(configuration) as client:
        result = await client.python(code)
        assert [artifact["path"] for artifact in result["artifacts"]] == ["good"]
        kept_back = {skipped["path"]: skipped["reason"] for skipped in result["artifacts_skipped"]}
        assert kept_back.pop("[secret PEM]") == "it holds the secret PEM"
        assert len(kept_back) == 3 + 12
        assert set(kept_back.values()) == {"it holds the secret API_KEY"}


async def test_a_secret_in_a_call_is_not_recorded_with_it(configuration: Path) -> None:
    async with serving(configuration, command=[*server_command(configuration), "--workspace", "w"]) as client:
        result = await client.python(
            f"import os; print({VALUE!r} == os.environ['API_KEY'], len(open('f').read()))",
            stdin=VALUE,
            files={"f": KEY},
        )
        assert result["stdout"] == f"True {len(KEY)}\n"
    with reading(Folder(configuration.parent / "audit")) as reader:
        run = reader.get(result["run_id"])
        assert run.opening["data"]["environment"] == ["API_KEY", "PEM"]
        assert reader.content(reader.resolve(result["run_id"]), "stdin") == b"[secret API_KEY]"
        assert reader.content(reader.resolve(result["run_id"]), "file:f") == b"[secret PEM]"
    for file in (configuration.parent / "audit").rglob("*"):
        if file.is_file():
            assert_free(file.read_bytes(), file.name)


async def test_docker_is_told_nothing(configuration: Path, engine_client: APIClient, tmp_path: Path) -> None:
    async with server(configuration) as client:
        call = await client.begin("execute_shell", command=SLEEP)
        (container,) = await sleeping(engine_client, tmp_path)
        inspected = json.dumps(engine_client.inspect_container(container), ensure_ascii=False)
        assert_free(inspected.encode(), "docker inspect")
        assert "API_KEY" not in inspected
        await client.cancel(call)


async def test_a_missing_secret_stops_the_run_and_is_named(configuration: Path, tmp_path: Path) -> None:
    (tmp_path / "api_key").unlink()
    async with server(configuration) as client:
        answer = await client.call("execute_python", code="print(1)")
        assert answer["isError"]
        text = answer["content"][0]["text"]
        assert text.startswith("secret_missing: the secret API_KEY cannot be had from the file ")
        (tmp_path / "api_key").write_text(VALUE)  # fetched for each run: the next one has it
        assert (await client.python("print(1)"))["stdout"] == "1\n"
        tools = await client.request("tools/list")
        description = tools["result"]["tools"][0]["description"]
        assert "API_KEY, PEM" in description


async def test_what_the_documents_say_is_not_covered_is_not(configuration: Path) -> None:
    async with serving(configuration, command=[*server_command(configuration), "--workspace", "w"]) as client:
        result = await client.python(
            "import os\ns = os.environ['API_KEY']\nprint(''.join(chr(ord(c) ^ 1) for c in s))\n"
            "print(' '.join(s))\nprint(s[:8], s[8:])\nprint(s[::-1])"
        )
        changed, spaced, halves, reversed_ = result["stdout"].splitlines()
        assert changed == "".join(chr(ord(c) ^ 1) for c in VALUE)
        assert spaced == " ".join(VALUE)
        assert halves == f"{VALUE[:8]} {VALUE[8:]}"
        assert reversed_ == "[secret API_KEY]"
