"""A program in the sandbox behaves as with `python3 main.py`: every byte it writes, and how it ends."""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

from mcp_sandbox.config.policy import Policy
from mcp_sandbox.engines.docker.connection import connect
from mcp_sandbox.engines.docker.engine import DockerEngine
from mcp_sandbox.guest.session import Program, run_program
from mcp_sandbox.plan import ready_spec, spec
from tests.corpus.cases import CASES, Case

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    import docker

    from mcp_sandbox.sandbox import Sandbox, SandboxSpec

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

PLAIN_PYTHON = Path(__file__).with_name("plain_python.py").read_text(encoding="utf-8")
SANDBOXED = spec(Policy(image="mcp-sandbox/minimal"))
PRELOADED = ready_spec(Policy(image="mcp-sandbox/minimal", preload=("decimal", "http.client", "sqlite3")))
PLAIN = SANDBOXED.model_copy(update={"command": ("python3", "-c", PLAIN_PYTHON)})
AT_ONCE = 4
MOST_OUTPUT = 4 << 20
"""Bytes of each stream that are compared: more than any of these programs writes."""


@dataclass(frozen=True)
class Outcome:
    stdout: bytes
    stderr: bytes
    exit_code: int | None
    signal: int | None


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def engine(engine_host: str) -> AsyncIterator[DockerEngine]:
    async with DockerEngine(connect(engine_host, os.environ), {"host": "tests", "server": "tests"}) as engine:
        yield engine


@pytest.fixture(scope="module")
async def truth(engine: DockerEngine) -> dict[str, Outcome]:
    return await run_plainly(engine)


async def run_plainly(engine: DockerEngine) -> dict[str, Outcome]:
    programs = [[case.name, base64.b64encode(case.source.encode()).decode()] for case in CASES]
    with anyio.fail_after(100):
        async with engine.launch(PLAIN) as sandbox:
            await sandbox.send(json.dumps(programs).encode() + b"\n")
            return dict(plain_outcomes(await everything_from(sandbox)))


async def everything_from(sandbox: Sandbox) -> bytes:
    received = bytearray()
    try:
        while True:
            received += await sandbox.receive()
    except anyio.EndOfStream:
        assert not sandbox.diagnostics, sandbox.diagnostics.decode()
        return bytes(received)


def plain_outcomes(lines: bytes) -> Iterator[tuple[str, Outcome]]:
    for line in lines.splitlines():
        told = json.loads(line)
        stdout, stderr = (base64.b64decode(told[name]) for name in ("stdout", "stderr"))
        yield told["name"], Outcome(stdout, stderr, told["exit_code"], told["signal"])


class Captured:
    """Keeps all output that comes."""

    def __init__(self) -> None:
        self.streams = {"stdout": bytearray(), "stderr": bytearray()}

    def write(self, stream: str, data: bytes) -> None:
        self.streams[stream] += data

    def write_tail(self, stream: str, data: bytes) -> None:
        pytest.fail(f"{stream} was cut")


async def run_sandboxed(sandbox: Sandbox, case: Case) -> Outcome:
    program = Program(
        language="python",
        code=case.source.encode(),
        timeout_seconds=20,
        head_bytes=MOST_OUTPUT,
        tail_bytes=0,
    )
    captured = Captured()
    report = await run_program(sandbox, program, captured)
    assert report.end is not None, report
    assert report.end.reason == "exited"
    stdout, stderr = (bytes(captured.streams[name]) for name in ("stdout", "stderr"))
    assert (report.end.stdout, report.end.stderr) == (len(stdout), len(stderr))
    return Outcome(stdout, stderr, report.end.exit_code, report.end.signal)


async def run_when_python_waits(
    engine: DockerEngine, client: docker.APIClient, case: Case, sandboxed: SandboxSpec = SANDBOXED
) -> Outcome:
    async with engine.launch(sandboxed) as sandbox:
        while not await anyio.to_thread.run_sync(python_waits, client, sandbox.name):  # noqa: ASYNC110
            await anyio.sleep(0.05)  # the engine has no event for it
        return await run_sandboxed(sandbox, case)


def python_waits(client: docker.APIClient, container: str) -> bool:
    """Tell whether Python has started and waits for its program at the FIFO.

    A program that comes sooner is found as the plain file that it is by then, and nothing would be proven.
    """
    processes = client.top(container, "-eo pid,wchan:40,args")["Processes"]
    return any("pipe_read" in waits_in and command == "python3 main.py" for _, waits_in, command in processes)


async def test_plain_python_does_the_same_twice(engine: DockerEngine, truth: dict[str, Outcome]) -> None:
    assert await run_plainly(engine) == truth
    assert truth.keys() == {case.name for case in CASES}


@pytest.mark.parametrize("topic", sorted({case.topic for case in CASES}))
async def test_a_program_does_for_waiting_python_what_it_does_for_plain_python(
    engine: DockerEngine,
    engine_client: docker.APIClient,
    truth: dict[str, Outcome],
    topic: str,
    subtests: pytest.Subtests,
) -> None:
    await compare(engine, engine_client, truth, topic, SANDBOXED, subtests)


@pytest.mark.parametrize("topic", ["exit", "gc", "import", "main"])
async def test_a_program_does_the_same_where_modules_were_imported_before_it_came(
    engine: DockerEngine,
    engine_client: docker.APIClient,
    truth: dict[str, Outcome],
    topic: str,
    subtests: pytest.Subtests,
) -> None:
    await compare(engine, engine_client, truth, topic, PRELOADED, subtests)


async def compare(
    engine: DockerEngine,
    client: docker.APIClient,
    truth: dict[str, Outcome],
    topic: str,
    sandboxed: SandboxSpec,
    subtests: pytest.Subtests,
) -> None:
    slots = anyio.CapacityLimiter(AT_ONCE)
    outcomes: dict[str, Outcome] = {}

    async def run(case: Case) -> None:
        async with slots:
            with anyio.fail_after(60):
                outcomes[case.name] = await run_when_python_waits(engine, client, case, sandboxed)

    async with anyio.create_task_group() as tasks:
        for case in CASES:
            if case.topic == topic:
                tasks.start_soon(run, case)
    for name, outcome in outcomes.items():
        with subtests.test(name):
            assert outcome == truth[name]


@pytest.mark.parametrize(
    "name", ["main_names", "traceback_uncaught", "syntax_error", "source_large", "source_cookie_latin1"]
)
async def test_a_program_does_the_same_when_it_comes_before_python_waits(
    engine: DockerEngine, truth: dict[str, Outcome], name: str
) -> None:
    case = next(case for case in CASES if case.name == name)
    with anyio.fail_after(60):
        async with engine.launch(SANDBOXED) as sandbox:
            assert await run_sandboxed(sandbox, case) == truth[name]
