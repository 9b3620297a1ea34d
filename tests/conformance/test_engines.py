"""What every engine promises, real ones and the fake alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from mcp_sandbox.errors import ImageMissing, RuntimeMissing
from tests.conformance.first_processes import COMPLAIN, ECHO, EXIT_7, HOARD, IGNORE_EVERYTHING

if TYPE_CHECKING:
    from mcp_sandbox.sandbox import Sandbox
    from tests.conformance.conftest import Subject

pytestmark = pytest.mark.anyio

MIB = 1 << 20
SECONDS = 60.0


async def receive_exactly(sandbox: Sandbox, size: int) -> bytes:
    received = bytearray()
    with anyio.fail_after(SECONDS):
        while len(received) < size:
            data = await sandbox.receive()
            assert data
            received += data
    return bytes(received)


async def receive_to_the_end(sandbox: Sandbox) -> bytes:
    received = bytearray()
    with anyio.fail_after(SECONDS):
        try:
            while True:
                received += await sandbox.receive()
        except anyio.EndOfStream:
            return bytes(received)


CONTENTS = [
    b"x",
    bytes(range(256)),
    b"\0" * 1000,
    b"\x10\x11" * 100,  # the keys that detach a terminal from Docker
    b"\x10",
    b"\x11",
    b"\x03\x04\x1a\x1c\r\n\r\n\n\x7f",
    b"\x01\x00\x00\x00\x00\x00\x00\x05hello",  # a frame of the engine's own
    "é€😀\ud800".encode("utf-8", "surrogatepass"),
]


async def test_bytes_pass_unchanged(subject: Subject) -> None:
    async with subject.engine.launch(subject.spec(ECHO)) as sandbox:
        for content in CONTENTS:
            await sandbox.send(content)
            assert await receive_exactly(sandbox, len(content)) == content


async def test_megabytes_pass_both_ways_at_once(subject: Subject) -> None:
    content = bytes(range(256)) * (4 * MIB // 256)
    async with subject.engine.launch(subject.spec(ECHO)) as sandbox, anyio.create_task_group() as tasks:
        tasks.start_soon(sandbox.send, content)
        assert await receive_exactly(sandbox, len(content)) == content


async def test_last_words_come_before_the_end_and_the_end_stays(subject: Subject) -> None:
    async with subject.engine.launch(subject.spec(EXIT_7)) as sandbox:
        assert await receive_to_the_end(sandbox) == b"last words"
        with pytest.raises(anyio.EndOfStream):
            await sandbox.receive()
        assert not sandbox.alive


async def test_sending_to_the_dead_is_told(subject: Subject) -> None:
    async with subject.engine.launch(subject.spec(EXIT_7)) as sandbox:
        await receive_to_the_end(sandbox)
        with anyio.fail_after(SECONDS), pytest.raises(anyio.BrokenResourceError):
            await sandbox.send(b"x" * MIB)


async def test_a_sandbox_is_alive_until_it_ends(subject: Subject) -> None:
    async with subject.engine.launch(subject.spec(ECHO)) as sandbox:
        assert sandbox.alive
        await sandbox.send(b"x")
        await receive_exactly(sandbox, 1)
        assert sandbox.alive


async def test_an_ordinary_end_is_known_within_two_seconds(subject: Subject) -> None:
    async with subject.engine.launch(subject.spec(EXIT_7)) as sandbox:
        await receive_to_the_end(sandbox)
        with anyio.fail_after(5):
            ending = await sandbox.ending()
    assert (ending.out_of_memory, ending.exit_code) == (False, 7)


async def test_an_end_for_lack_of_memory_is_known_as_that(subject: Subject) -> None:
    async with subject.engine.launch(subject.spec(HOARD)) as sandbox:
        assert await receive_to_the_end(sandbox) == b"hoarding"
        with anyio.fail_after(5):
            ending = await sandbox.ending()
    # An engine that cannot be sure says so: a kill for memory is never told as another end.
    assert ending.out_of_memory in (True, None)
    assert ending.exit_code == 137


async def test_diagnostics_are_the_bounded_head_of_stderr_and_no_part_of_stdout(subject: Subject) -> None:
    async with subject.engine.launch(subject.spec(COMPLAIN)) as sandbox:
        assert await receive_exactly(sandbox, 4) == b"done"
        await sandbox.send(b"x")
        assert await receive_to_the_end(sandbox) == b""
        assert sandbox.diagnostics.startswith(b"first complaint\nxxx")
        assert len(sandbox.diagnostics) <= 64 << 10


class TestLeaving:
    """Leaving the scope kills and removes, always."""

    async def test_in_peace(self, subject: Subject) -> None:
        async with subject.engine.launch(subject.spec(IGNORE_EVERYTHING)) as sandbox:
            assert await receive_exactly(sandbox, 5) == b"ready"
            assert sandbox.name in subject.alive()
        await subject.gone()

    async def test_with_an_error_which_is_told_as_it_was(self, subject: Subject) -> None:
        async def fail() -> None:
            async with subject.engine.launch(subject.spec(IGNORE_EVERYTHING)) as sandbox:
                await receive_exactly(sandbox, 5)
                raise KeyError("ours")

        with pytest.raises(KeyError, match="ours"):
            await fail()
        await subject.gone()

    async def test_cancelled(self, subject: Subject) -> None:
        with anyio.CancelScope() as scope:
            async with subject.engine.launch(subject.spec(IGNORE_EVERYTHING)) as sandbox:
                await receive_exactly(sandbox, 5)
                scope.cancel()
                await sandbox.receive()
        assert scope.cancelled_caught
        await subject.gone()

    async def test_cancelled_at_any_moment_of_its_start(self, subject: Subject) -> None:
        async def launch(seconds: float) -> None:
            with anyio.move_on_after(seconds):
                async with subject.engine.launch(subject.spec(IGNORE_EVERYTHING)):
                    await anyio.sleep_forever()

        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:
                for seconds in (0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8):
                    tasks.start_soon(launch, seconds)
        await subject.gone()

    async def test_after_the_end(self, subject: Subject) -> None:
        async with subject.engine.launch(subject.spec(EXIT_7)) as sandbox:
            await receive_to_the_end(sandbox)
        await subject.gone()

    async def test_with_output_that_nobody_read(self, subject: Subject) -> None:
        async with subject.engine.launch(subject.spec(ECHO)) as sandbox, anyio.create_task_group() as tasks:
            tasks.start_soon(sandbox.send, b"x" * (64 * MIB))
            await receive_exactly(sandbox, MIB)
            tasks.cancel_scope.cancel()
        await subject.gone()

    async def test_the_stream_is_of_no_more_use(self, subject: Subject) -> None:
        async with subject.engine.launch(subject.spec(ECHO)) as sandbox:
            pass
        await subject.gone()
        with anyio.fail_after(SECONDS):
            with pytest.raises(anyio.BrokenResourceError):
                await sandbox.send(b"x" * MIB)
            with pytest.raises(anyio.EndOfStream):
                await sandbox.receive()
        assert not sandbox.alive


async def test_eight_at_once_have_nothing_in_common(subject: Subject) -> None:
    names: set[str] = set()
    together = anyio.Event()

    async def run(number: int) -> None:
        async with subject.engine.launch(subject.spec(ECHO)) as sandbox:
            names.add(sandbox.name)
            if len(names) == 8:
                together.set()
            await together.wait()
            own = f"only for number {number}\n".encode() * 1000
            await sandbox.send(own)
            assert await receive_exactly(sandbox, len(own)) == own

    with anyio.fail_after(SECONDS):
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(run, number)
    assert len(names) == 8
    await subject.gone()


async def test_a_missing_image_is_told_and_leaves_nothing(subject: Subject) -> None:
    with anyio.fail_after(SECONDS), pytest.raises(ImageMissing, match="nobody/has-this"):
        async with subject.engine.launch(subject.spec(ECHO, image="nobody/has-this:1")):
            pass
    await subject.gone()


async def test_a_missing_runtime_is_told_and_no_other_is_used(subject: Subject) -> None:
    with anyio.fail_after(SECONDS), pytest.raises(RuntimeMissing, match="nobodys-runtime"):
        async with subject.engine.launch(subject.spec(ECHO, runtime="nobodys-runtime")):
            pass
    await subject.gone()


async def test_a_failure_does_not_harm_the_next(subject: Subject) -> None:
    with pytest.raises(ImageMissing):
        async with subject.engine.launch(subject.spec(ECHO, image="nobody/has-this:1")):
            pass
    async with subject.engine.launch(subject.spec(ECHO)) as sandbox:
        await sandbox.send(b"well")
        assert await receive_exactly(sandbox, 4) == b"well"
