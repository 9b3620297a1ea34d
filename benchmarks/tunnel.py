"""A large download over TLS, from a sandbox through the tunnel and by the same client without either.

`python -m benchmarks.tunnel` measures it by itself.
"""

from __future__ import annotations

import os
import resource
import socket
import ssl
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import trustme

from benchmarks.bench import STANDARD, Bench
from mcp_sandbox.app import running
from mcp_sandbox.config.policy import Configuration, Policy
from mcp_sandbox.config.settings import AuditSettings, EngineSettings
from mcp_sandbox.model import ExecutionRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
SIZE = 500 * MIB
CURL = "curl -sS --noproxy '' -o /dev/null -w '%{time_total}'"
AGENT_CPU = "cut -d' ' -f14,15 /proc/1/stat"
TICKS = os.sysconf("SC_CLK_TCK")


async def download(bench: Bench) -> str:
    """Half a gibibyte, twice in turn; the first of ours is not counted, for it fills what stays filled."""
    rows, grown, cpu, agent_cpu = [], 0.0, 0.0, 0.0
    with pouring(bench.folder) as (port, authority):
        configuration = Configuration(
            engine=EngineSettings(host=bench.host),
            audit=AuditSettings(path=str(bench.folder / "tunnel")),
            policy=Policy.model_validate(
                {
                    "image": STANDARD,
                    "egress": {"allow": (f"https://127.0.0.1:{port}",), "ca_bundle": str(authority)},
                }
            ),
        )
        url = f"https://127.0.0.1:{port}/"
        request = ExecutionRequest(
            language="shell", code=f"{CURL} {url}; echo; {AGENT_CPU}", timeout_seconds=300
        )
        async with running(configuration, os.environ, origin="cli") as executor:
            for _ in range(2):
                directly = await anyio.run_process(["bash", "-c", f"{CURL} --cacert {authority} {url}"])
                before = resource.getrusage(resource.RUSAGE_SELF)
                result = await executor.execute(request)
                after = resource.getrusage(resource.RUSAGE_SELF)
                took, *ticks = result.stdout.split()
                rows.append((float(directly.stdout), float(took)))
                grown = (after.ru_maxrss - before.ru_maxrss) / 1024
                cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                agent_cpu = sum(map(int, ticks)) / TICKS
    alone, ours = (SIZE / MIB / min(column) for column in zip(*rows, strict=True))
    bench.expect(grown < 16, "a download does not grow the server")
    return (
        f"### {SIZE // MIB} MiB over TLS\n\n| | MiB/s | ratio |\n|---|---:|---:|\n"
        f"| curl on the host | {alone:.0f} | 1.00 × |\n"
        f"| curl in a sandbox, through the tunnel | {ours:.0f} | {ours / alone:.2f} × |\n\n"
        f"For all of it the server used {cpu:.1f} s of CPU and the agent {agent_cpu:.1f} s; the server's memory grew "
        f"by {grown:.1f} MiB.\n"
    )


@contextmanager
def pouring(folder: Path) -> Iterator[tuple[int, Path]]:
    """Serve zeros over TLS, from another process; yield the port and the file of who vouches for it."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    certificate = folder / "certificate.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(certificate))
    command = [sys.executable, "-m", "benchmarks.tunnel", str(certificate)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout
        try:
            yield int(server.stdout.readline()), folder / "authority.pem"
        finally:
            server.kill()


def pour(certificate: str) -> None:
    """Answer one connection after the other with `SIZE` zeros; prints the port first."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    chunk = bytes(MIB)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            connection, _ = listener.accept()
            with context.wrap_socket(connection, server_side=True) as client:
                client.recv(65536)
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SIZE)
                for _ in range(SIZE // MIB):
                    client.sendall(chunk)


async def main() -> None:
    """Measure it and print it."""
    with tempfile.TemporaryDirectory(prefix="mcp-sandbox-bench-") as folder:
        print(await download(Bench(os.environ["DOCKER_HOST"], Path(folder), quick=False)))


if __name__ == "__main__":
    if sys.argv[1:]:
        pour(sys.argv[1])
    else:
        anyio.run(main)
