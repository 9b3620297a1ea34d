"""Output without end: counted to the byte, kept within bounds, and no concern of any other call."""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from mcp_sandbox.server.wire import MAX_LINE_BYTES
from tests.clients.raw import RawClient, configuration_file, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.engine

MIB = 1 << 20
GROWTH = 30 * MIB
REPLY = 20 << 10
MANY_SECONDS = 100.0


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def server(engine_host: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RawClient]:
    configuration = configuration_file(
        tmp_path_factory.mktemp("floods"), engine_host, server={"reply_within_seconds": MANY_SECONDS}
    )
    async with serving(configuration) as client:
        await client.python("print('imports what is imported late')")
        yield client


def memory(server: RawClient, which: str) -> int:
    """Return bytes of the server's resident memory: now (VmRSS), or the most since it was reset (VmHWM)."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(rf"{which}:\s+(\d+) kB", status)
    assert found
    return int(found[1]) << 10


@contextmanager
def within_bounds(server: RawClient, growth: int = GROWTH) -> Iterator[None]:
    """Check that the server's memory does not grow much, not even for a moment."""
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")
    before = memory(server, "VmRSS")
    yield
    assert memory(server, "VmHWM") - before < growth


FLOODS = {
    "2 GiB without a newline": (
        "import os\nfor _ in range(2048): os.write(1, b'x' * (1 << 20))",
        2 << 30,
        0,
    ),
    "three million writes of one byte": (
        "import os\nfor _ in range(3_000_000): os.write(1, b'x')",
        3_000_000,
        0,
    ),
    "three million lines": ("import os\nfor _ in range(3000): os.write(1, b'x\\n' * 1000)", 6_000_000, 0),
    "64 MiB of noise": ("import os\nfor _ in range(64): os.write(1, os.urandom(1 << 20))", 64 << 20, 0),
    "both streams at once": (
        "import os, threading\n"
        "def flood(fd):\n    for _ in range(256): os.write(fd, b'y' * (1 << 20))\n"
        "threads = [threading.Thread(target=flood, args=(fd,)) for fd in (1, 2)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()",
        256 << 20,
        256 << 20,
    ),
}


@pytest.mark.parametrize("flood", FLOODS)
async def test_a_flood_is_counted_and_does_not_stay_in_memory(flood: str, server: RawClient) -> None:
    code, stdout, stderr = FLOODS[flood]
    with within_bounds(server):
        result = await server.call(
            "execute_python", code=code, timeout_seconds=MANY_SECONDS, seconds=MANY_SECONDS
        )
    structured = result["structuredContent"]
    assert structured["status"] == "exited"
    assert (structured["stdout_bytes"], structured["stderr_bytes"]) == (stdout, stderr)
    assert structured["truncated"] is True
    assert structured["hint"]
    shown = len(structured["stdout"].encode()) + len(structured["stderr"].encode())
    assert REPLY // 2 < shown < 4 * REPLY  # what stands for a byte that is no text has three
    assert "bytes left out" in structured["stdout"]


async def test_a_line_without_end_does_not_stay_in_memory(server: RawClient) -> None:
    with within_bounds(server, growth=2 * MAX_LINE_BYTES):
        for _ in range(500):
            await server.send(b"x" * MIB)
        await server.send(b"\n")
        refused = await server.heard(lambda message: message.get("id", 0) is None, MANY_SECONDS)
    assert "longer than" in refused["error"]["message"]
    assert (await server.python("print('on')"))["stdout"] == "on\n"


async def seconds_of_a_call(server: RawClient) -> float:
    """Return how long a small call takes, at best."""
    times = []
    for number in range(3):
        began = anyio.current_time()
        assert (await server.python(f"print({number})"))["stdout"] == f"{number}\n"
        times.append(anyio.current_time() - began)
    return min(times)


WITHOUT_END = {
    "floods": (
        "import os, threading\n"
        "def flood(fd):\n    while True: os.write(fd, b'z' * (1 << 16))\n"
        "threading.Thread(target=flood, args=(2,)).start(); flood(1)"
    ),
    "computes": "import os\nos.fork(); os.fork(); os.fork()\nwhile True: pass",
}


@pytest.mark.parametrize("what", WITHOUT_END)
async def test_other_calls_are_answered_while_one_goes_on(what: str, server: RawClient) -> None:
    alone = await seconds_of_a_call(server)
    flood = await server.begin("execute_python", code=WITHOUT_END[what], timeout_seconds=MANY_SECONDS)
    with within_bounds(server):
        meanwhile = await seconds_of_a_call(server)
    assert server.answers_to(flood) == []
    assert meanwhile < 10 * alone
    await server.cancel(flood)
    assert (await server.python("print('after')"))["stdout"] == "after\n"
