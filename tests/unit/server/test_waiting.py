"""What a client learns of a run while it waits: each phase once it begins, and every byte of output once."""

from __future__ import annotations

import gc
import weakref
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp import Client

from mcp_sandbox.audit.store import AuditStore
from mcp_sandbox.config.policy import Configuration, Policy
from mcp_sandbox.config.settings import AuditSettings, ServerSettings
from mcp_sandbox.executor import Executor
from mcp_sandbox.server import create_server, flight, pictures, tools
from mcp_sandbox.server.flight import Flights
from tests.fakes import FakeEngine, plays

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.fakes import Guest, Process, Script

pytestmark = pytest.mark.anyio

SECONDS = 20
CODE = {"code": "print(1)"}


@asynccontextmanager
async def serving(
    script: Script,
    folder: Path,
    *,
    reply_within_seconds: float = SECONDS,
    parallel: int = 4,
    until: anyio.Event | None = None,
    **policy: object,
) -> AsyncIterator[Client]:
    configuration = Configuration(
        policy=Policy.model_validate({"timeout_seconds": 30, **policy}),
        audit=AuditSettings(path=str(folder / "audit")),
        server=ServerSettings(max_parallel=parallel),
    )
    with anyio.fail_after(SECONDS):
        async with FakeEngine(script, until=until) as engine:
            record = AuditStore(folder / "audit")
            executor = Executor(configuration, engine, record, origin="mcp")
            async with (
                Flights(executor, reply_within_seconds=reply_within_seconds) as flights,
                Client(create_server(flights), raise_exceptions=True) as client,
            ):
                yield client
            await record.aclose()


class Told:
    """Progress as a client is told it, and means to wait for it."""

    def __init__(self) -> None:
        self.progress: list[tuple[float, float | None]] = []
        self.words: list[str] = []
        self._more = anyio.Event()

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append((progress, total))
        self.words.append(message or "")
        self._more.set()
        self._more = anyio.Event()

    async def heard(self, words: str) -> None:
        while not any(words in said for said in self.words):
            await self._more.wait()


# Phases


async def test_who_waits_is_told_each_phase_as_it_begins(tmp_path: Path) -> None:
    go, ended, taken = anyio.Event(), anyio.Event(), anyio.Event()

    async def program(guest: Guest) -> None:
        await guest.print(b"step 1\n")
        await ended.wait()
        await guest.exit(stdout=7)
        await guest.come_out(b"a.bin", b"x" * 300_000)
        await taken.wait()
        await guest.say(b"z", guest.fields(refused=0))

    told = Told()
    async with serving(plays(program), tmp_path, until=go) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(partial(client.call_tool, "execute_python", CODE, progress_callback=told))
        await told.heard("starting a sandbox")
        go.set()
        await told.heard("running for 0 s of 30 at most")
        ended.set()
        await told.heard("taking files out")
        taken.set()
    progress = [at for at, _ in told.progress]
    assert progress == sorted(set(progress)), "the protocol wants it to grow each time"
    totals = dict(zip(told.words, [total for _, total in told.progress], strict=True))
    assert totals["starting a sandbox"] is None
    assert (totals["taking files out"] or 0) >= 30


async def test_who_waits_behind_others_is_told_so(tmp_path: Path) -> None:
    ended = anyio.Event()

    async def program(guest: Guest) -> None:
        await ended.wait()
        await guest.exit()
        await guest.say(b"z", guest.fields(refused=0))

    first, second = Told(), Told()
    async with serving(plays(program), tmp_path, parallel=1) as client, anyio.create_task_group() as tasks:

        async def call(told: Told) -> None:
            result = await client.call_tool("execute_python", CODE, progress_callback=told)
            assert result.structured_content is not None
            assert result.structured_content["status"] == "exited"

        tasks.start_soon(call, first)
        await first.heard("running")
        tasks.start_soon(call, second)
        await second.heard("waiting for other runs to end")
        ended.set()
    assert not any("waiting" in said for said in first.words)
    assert any("running" in said for said in second.words)


async def test_a_copy_of_the_workspace_is_told_with_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "HEARTBEAT_SECONDS", 0.01)
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(20):  # more than are taken unread
        (folder / str(number)).write_bytes(bytes(1 << 20))
    told = Told()

    async def script(process: Process) -> None:
        await told.heard(" of 21.0 MB")
        while await process.read():
            pass

    async with (
        serving(script, tmp_path, path=str(folder), workspace_transfer="copy") as client,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(partial(client.call_tool, "execute_python", CODE, progress_callback=told))
        await told.heard(" of 21.0 MB")
        tasks.cancel_scope.cancel()
    assert any(said.startswith("copying the workspace in, ") for said in told.words)


# Output


async def ask(client: Client, tool: str, **arguments: object) -> dict[str, Any]:
    """Call a tool and return the structured answer."""
    answer = await client.call_tool(tool, arguments)
    assert answer.structured_content is not None, answer
    return answer.structured_content


@pytest.mark.parametrize("cut", range(1, 13))
async def test_output_that_comes_in_parts_is_had_once_wherever_it_was_cut(tmp_path: Path, cut: int) -> None:
    written = "é€😀\x1b[31mred\x1b[0m\x1b]0;title\x07 line\r\nend\n".encode()

    asked = anyio.Semaphore(0)

    async def program(guest: Guest) -> None:
        for start in range(0, len(written), cut):
            await guest.print(written[start : start + cut])
            await asked.acquire()
        await guest.exit(stdout=len(written))
        await guest.say(b"z", guest.fields(refused=0))

    pieces: list[str] = []
    async with serving(plays(program), tmp_path, reply_within_seconds=0.01) as client:
        run = await ask(client, "execute_python", **CODE)
        while run["status"] == "running":
            pieces.append(run["stdout"])
            assert f"stdout_from={run['stdout_bytes']}," in run["hint"]
            asked.release()
            run = await ask(client, "get_run", run_id=run["run_id"], stdout_from=run["stdout_bytes"])
        pieces.append(run["stdout"])
    assert "".join(pieces) == "é€😀red line\nend\n"


async def test_what_looks_like_the_beginning_of_a_sequence_and_goes_on_for_long_comes_all_the_same(
    tmp_path: Path,
) -> None:
    ended = anyio.Event()

    async def program(guest: Guest) -> None:
        await guest.print(b"before\x1b]" + b"x" * 1000)
        await ended.wait()
        await guest.exit(stdout=1008)
        await guest.say(b"z", guest.fields(refused=0))

    async with serving(plays(program), tmp_path, reply_within_seconds=0.1) as client:
        run = await ask(client, "execute_python", **CODE)
        while run["stdout_bytes"] < 1008:
            run = await ask(client, "get_run", run_id=run["run_id"], wait_seconds=0.01)
        assert run["status"] == "running"
        ended.set()


@pytest.mark.parametrize(
    ("offset", "goes_on"),
    [(7, "000074"), (6144, "\n[… "), (50_000, "\n[… "), (67_959, "009781")],
    ids=["head", "end of the head", "gap", "tail"],
)
async def test_the_rest_of_what_was_cut_is_where_the_marker_says(
    tmp_path: Path, offset: int, goes_on: str
) -> None:
    """Head and tail of the stream are kept, a marker between them: places in the file are not those in the stream."""
    lines = [b"%06d\n" % number for number in range(10_000)]
    written, head, tail = b"".join(lines), 6144, 2048

    async def program(guest: Guest) -> None:
        await guest.print(written[:head])
        await guest.say(b"O", written[-tail:])
        await guest.exit(stdout=len(written), stdout_lines=len(lines), stderr_lines=0)
        await guest.say(b"z", guest.fields(refused=0))

    limits = {"output_limit": head + tail, "reply_limit": 1024}
    async with serving(plays(program), tmp_path, **limits) as client:
        run_id = (await ask(client, "execute_python", **CODE))["run_id"]
        end = await ask(client, "get_run", run_id=run_id, stdout_from=offset)
        beginning, _, rest = end["stdout"].partition("\n[… ")
        assert written[offset:].startswith(beginning.encode())
        assert written.endswith(rest.partition("…]\n")[2].encode())
        place = int(rest.partition("offset=")[2].partition(")")[0])
        read = await ask(client, "read_artifact", run_id=run_id, path="stdout.txt", offset=place)
        text = read["text"]
        assert text.startswith(goes_on)
        assert text.encode().endswith(written[-tail:][-len(text.encode()) :])


async def test_a_run_that_ended_long_ago_gives_what_is_new_since_an_offset_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flight, "KEPT", 0)

    async def program(guest: Guest) -> None:
        await guest.print("one é\ntwo\n".encode())
        await guest.exit(stdout=11)
        await guest.say(b"z", guest.fields(refused=0))

    async with serving(plays(program), tmp_path) as client:
        run_id = (await ask(client, "execute_python", **CODE))["run_id"]
        for offset, new in ((0, "one é\ntwo\n"), (7, "two\n"), (11, ""), (10**6, "")):
            found = await ask(client, "get_run", run_id=run_id, stdout_from=offset)
            assert (found["stdout"], found["stdout_bytes"]) == (new, 11)


# Pictures


async def test_a_picture_that_takes_long_to_scale_does_not_keep_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "ALL_SECONDS", 0.2)
    large = b"\x89PNG\r\n\x1a\n" + bytes(pictures.MAX_BYTES)

    async def program(guest: Guest) -> None:
        if b"PIL" in guest.asked.code:
            await guest.hang()
        await guest.exit()
        await guest.come_out(b"large.png", large)
        await guest.say(b"z", guest.fields(refused=0))

    async with serving(plays(program), tmp_path) as client:
        answer = await client.call_tool("execute_python", CODE)
    assert [content.type for content in answer.content] == ["text", "resource_link"]


async def test_a_run_that_ended_is_let_go_at_once_with_its_output_when_nobody_can_ask_for_it() -> None:
    run = flight.Flight(1.0)
    gone = weakref.ref(run)
    gc.disable()  # it would find the run some day, with the output of a thousand others
    try:
        run.end()
        del run
        assert gone() is None
    finally:
        gc.enable()
