"""Bound secrets in real sandboxes: real clients use them, the host gets them, and they are nowhere else."""

from __future__ import annotations

import base64
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mcp_sandbox.audit.folder import Folder
from mcp_sandbox.audit.query import reading
from mcp_sandbox.redact import forms_of
from tests.clients.raw import configuration_file, server_command, serving
from tests.engine.internet import Internet, internet
from tests.engine.sandboxes import SLEEP, sandboxes, sleeping, some_left

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docker import APIClient

pytestmark = [pytest.mark.engine, pytest.mark.anyio]

VALUE = "Zx9-s3cr3t/Qw+7=amlaut_8"
PLAIN = "for-pYthon-alone-77"

CLIENTS = {
    "requests": "import os, requests\nprint(requests.get(URL, headers={'X-Api-Key': os.environ['API_KEY']}).text)",
    "urllib": "import os, urllib.request as u\n"
    "print(u.urlopen(u.Request(URL, headers={'X-Api-Key': os.environ['API_KEY']})).read().decode())",
    "http basic": "import os, requests\nprint(requests.get(URL, auth=('user', os.environ['API_KEY'])).text)",
    "curl": 'curl -sS --fail -H "X-Api-Key: $API_KEY" URL',
    "curl -u": 'curl -sS --fail -u "user:$API_KEY" URL',
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Internet]:
    with internet(tmp_path_factory.mktemp("internet")) as made:
        made.echoes = {("api.test", "/echo"), ("index.test", "/echo")}
        yield made


@pytest.fixture
def configuration(engine_host: str, tmp_path: Path, world: Internet, runtime: str) -> Path:
    (tmp_path / "key").write_text(VALUE + "\n")
    file = configuration_file(tmp_path, engine_host, image="mcp-sandbox/standard", runtime=runtime)
    file.write_text(
        f"{file.read_text()}\n[workspaces.w.egress]\n"
        f'allow = ["api.test", "index.test"]\nupstream_proxy = "http://127.0.0.1:{world.proxy_port}"\n'
        f'ca_bundle = "{world.ca_bundle}"\n'
        "[workspaces.w.secrets]\n"
        f'API_KEY = {{ file = "{tmp_path}/key", hosts = ["api.test"] }}\n'
        f'PY_KEY = {{ command = ["echo", "{PLAIN}"], tools = ["execute_python"] }}\n'
    )
    return file


def served(configuration: Path) -> Any:
    return serving(configuration, command=[*server_command(configuration), "--workspace", "w"])


def leaks_in(data: bytes, *values: str) -> list[bytes]:
    return [form for value in values or (VALUE, PLAIN) for form in forms_of(value.encode()) if form in data]


async def test_real_clients_use_it_without_holding_it_and_it_is_nowhere_else(
    configuration: Path, world: Internet, engine_client: APIClient, tmp_path: Path, runtime: str
) -> None:
    began = time.time() - 1
    async with served(configuration) as client:
        tools = (await client.request("tools/list"))["result"]["tools"]
        assert "API_KEY (api.test)" in tools[0]["description"]

        for name, program in CLIENTS.items():
            world.requests.clear()
            code = program.replace("URL", "'https://api.test/echo'")
            result = await (client.shell if name.startswith("curl") else client.python)(code)
            assert result["exit_code"] == 0, (name, result["stderr"])
            ((host, _, headers),) = world.requests
            said = headers.get("x-api-key") or base64.b64decode(headers["authorization"][6:]).decode()
            assert (host, said.removeprefix("user:")) == ("api.test", VALUE)
            assert "*" * 12 in result["stdout"]  # what the host repeats is written over
            assert not leaks_in(json.dumps(result).encode()), name
        used = result["run_id"]

        # Another host gets what the program holds, through TLS that nobody opens.
        held = (await client.shell('printf %s "$API_KEY"'))["stdout"]
        assert held.startswith("mcp-sandbox-API_KEY-")
        result = await client.shell('curl -sS -H "X-Api-Key: $API_KEY" https://index.test/echo')
        assert "X-Api-Key: mcp-sandbox-API_KEY-" in result["stdout"]
        # Nothing inside holds it: not the environment of any process, not a file, not memory that can be read.
        hunt = (
            "import os, sys\nfor f in ('/proc/1/environ', '/proc/self/environ', '/tmp/.authorities.pem'):\n"
        )
        hunt += (
            "  open('kept', 'w').write(os.environ['PY_KEY'])\n"  # in memory alone, and it does not come out
        )
        hunt += "  try: sys.stdout.buffer.write(open(f, 'rb').read()[-2000:])\n  except OSError: pass"
        assert not leaks_in((await client.python(hunt))["stdout"].encode())

        call = await client.begin("execute_shell", command=f"export K=$API_KEY; {SLEEP}")
        if runtime == "runc":
            await sleeping(engine_client, tmp_path)
        else:  # no process of gVisor's shows on the host
            await some_left(engine_client, tmp_path)
        for container in sandboxes(engine_client, tmp_path):
            assert not leaks_in(json.dumps(engine_client.inspect_container(container["Id"])).encode())
        for process in Path("/proc").glob("[0-9]*"):
            for part in ("cmdline", "environ"):
                with suppress(OSError):
                    assert not leaks_in((process / part).read_bytes(), VALUE), process
        await client.cancel(call)
        run_id = result["run_id"]
    for message in client.messages:
        assert not leaks_in(json.dumps(message, ensure_ascii=False).encode())
    assert not leaks_in(client.stderr.encode())
    searched = [
        *_changed(tmp_path / "audit", 0),
        *_changed(Path(engine_client.info()["DockerRootDir"]), began),
    ]
    assert any(file.name == "record.sqlite3" for file in searched)
    assert leaks_in((tmp_path / "key").read_bytes())  # what is looked for can be found
    for file in searched:
        with suppress(OSError):
            assert not leaks_in(file.read_bytes()), file
    with reading(Folder(tmp_path / "audit")) as reader:
        made = reader.get(used).closing["data"]["facts"]["egress"]
        assert ["API_KEY"] in [connection["secrets"] for connection in made]
        assert reader.get(run_id).policy["secret_use"][0]["hosts"] == ["api.test"]


def _changed(folder: Path, since: float) -> Iterator[Path]:
    """Yield the files below, as far as they can be seen, that changed since then."""
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                file = Path(place, name)
                if file.lstat().st_mtime >= since and file.lstat().st_size < 64 << 20:
                    yield file


async def test_a_secret_goes_to_runs_of_its_tools_alone(configuration: Path, tmp_path: Path) -> None:
    async with served(configuration) as client:
        code = "import os; print(len(os.environ.get('PY_KEY', '')))"
        assert (await client.python(code))["stdout"] == f"{len(PLAIN)}\n"
        assert (await client.shell("echo ${#PY_KEY}"))["stdout"] == "0\n"
        python, shell = (await client.request("tools/list"))["result"]["tools"][:2]
        assert "PY_KEY" in python["description"]
        assert "PY_KEY" not in shell["description"]
        # One that is missing fails the runs that need it, by name, and no others.
        (tmp_path / "key").unlink()
        answer = await client.call("execute_shell", command="true")
        assert "secret_missing: the secret API_KEY cannot be had" in answer["content"][0]["text"]
        (tmp_path / "key").write_text("two\nlines of it\n")
        answer = await client.call("execute_shell", command="true")
        assert "holds what no header can carry" in answer["content"][0]["text"]
        assert "lines of it" not in json.dumps(answer)
