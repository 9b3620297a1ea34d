"""Files that come out: whatever the guest sends, only what arrived whole under a plain name is kept; and copied out,
nothing that was there is replaced."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_sandbox.artifacts import ArtifactCollector, collecting
from mcp_sandbox.cli.out import copy_out, place
from mcp_sandbox.config.policy import Configuration, Policy
from mcp_sandbox.errors import SandboxError
from mcp_sandbox.executor import Executor
from mcp_sandbox.model import Artifact, ExecutionRequest, ExecutionResult
from tests.fakes import FakeEngine, FakeRecord, Guest, plays
from tests.full_disk import files_of_at_most

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator
    from pathlib import Path


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[ArtifactCollector]:
    with collecting("run", tmp_path / "staging") as collector:
        assert collector
        yield collector
    assert not (tmp_path / "staging").exists()


def come(collector: ArtifactCollector, path: bytes, content: bytes) -> None:
    collector.begin(path, len(content))
    for start in range(0, len(content), 7):
        collector.write(content[start : start + 7])


def kept(collector: ArtifactCollector) -> dict[str, bytes]:
    """Return what was kept, as the record would take it."""
    collector.finish()
    contents = {content.role: content for content in collector.contents}
    assert list(contents) == [f"artifact:{artifact.path}" for artifact in collector.artifacts]
    found = {}
    for artifact in collector.artifacts:
        content = contents[f"artifact:{artifact.path}"]
        assert content.file is not None
        data = content.file.read_bytes()
        assert hashlib.sha256(data).hexdigest() == artifact.sha256 == content.sha256
        assert len(data) == artifact.size
        assert unquote(artifact.uri) == f"run://run/artifacts/{artifact.path}"
        found[artifact.path] = data
    return found


def skipped(collector: ArtifactCollector) -> dict[str, str]:
    return {each.path: each.reason for each in collector.skipped}


def test_what_arrives_whole_is_kept_byte_for_byte(collector: ArtifactCollector) -> None:
    come(collector, b"plot.png", b"\x89PNG" * 1000)
    come(collector, b"sub/empty", b"")
    come(collector, "größe %20#?.txt".encode(), b"x")
    assert kept(collector) == {"plot.png": b"\x89PNG" * 1000, "sub/empty": b"", "größe %20#?.txt": b"x"}
    assert not collector.skipped


def test_names_that_are_tricks_are_refused_one_by_one_and_the_good_ones_kept(
    collector: ArtifactCollector,
) -> None:
    for path in (b"/etc/passwd", b"../up", b"a/../../b", b"a\nb", b"\xff\xfe", b"", b"\x1b[2J", b"x" * 300):
        come(collector, path, b"content")
        come(collector, b"good%d" % len(collector.artifacts), b"content")
    assert len(kept(collector)) == 8
    reasons = skipped(collector)
    assert len(reasons) == 8
    assert set(reasons.values()) == {"its name is no printable text, or no relative path"}
    assert "a␊b" in reasons
    assert all(path.isprintable() and len(path) <= 200 for path in reasons)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Data.csv", "data.CSV"),
        ("straße", "STRASSE"),
        ("caf\u00e9", "cafe\u0301"),
        ("a/b", "A/B"),
        ("name", "name."),
        ("dir/x", "dir /x"),
        ("same", "same"),
    ],
)
def test_names_that_some_disks_take_for_one_do_not_both_come(
    collector: ArtifactCollector, first: str, second: str
) -> None:
    come(collector, first.encode(), b"first")
    come(collector, second.encode(), b"second")
    assert kept(collector) == {first: b"first"}
    assert list(skipped(collector).values()) == ["its name differs from another's only in case or in form"]


def test_a_file_that_is_cut_short_is_no_artifact_and_the_next_one_is(collector: ArtifactCollector) -> None:
    collector.begin(b"cut", 100)
    collector.write(b"x" * 99)
    come(collector, b"whole", b"content")
    collector.begin(b"last", 5)
    collector.write(b"1234")
    assert kept(collector) == {"whole": b"content"}
    assert skipped(collector) == dict.fromkeys(("cut", "last"), "it did not arrive whole")


@pytest.mark.parametrize("size", [2000, 200_000], ids=["found as it is closed", "found as it is written"])
def test_a_file_for_which_the_disk_has_no_room_is_told_of_and_the_others_come(
    collector: ArtifactCollector, size: int
) -> None:
    with files_of_at_most(1000):
        come(collector, b"small", b"x" * 500)
        come(collector, b"large", b"x" * size)
        come(collector, b"next", b"y" * 500)
        assert kept(collector) == {"small": b"x" * 500, "next": b"y" * 500}
    assert skipped(collector) == {"large": "it could not be stored: file too large"}


def test_what_was_kept_back_is_told_with_its_reason(collector: ArtifactCollector) -> None:
    for reason in ("link", "not_a_file", "too_deep", "too_large", "unreadable"):
        collector.refused(f"a {reason}".encode(), reason)
    assert skipped(collector)["a link"] == "a link: only regular files come out"
    assert skipped(collector)["a too_large"] == "larger than a file may be"
    assert kept(collector) == {}


def test_no_more_names_of_what_stayed_behind_are_told_than_anybody_reads(
    collector: ArtifactCollector,
) -> None:
    for number in range(1000):
        collector.refused(b"%d" % number, "link")
        come(collector, b"../%d" % number, b"")
    assert len(collector.skipped) == 100


@given(
    st.lists(
        st.tuples(st.just("begin"), st.binary(max_size=12), st.integers(0, 20))
        | st.tuples(st.just("write"), st.binary(max_size=12), st.just(0))
        | st.tuples(st.just("refused"), st.binary(max_size=12), st.just(0)),
        max_size=30,
    )
)
@settings(max_examples=60)
def test_no_order_of_events_keeps_what_did_not_arrive_whole(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[str, bytes, int]]
) -> None:
    folder = tmp_path_factory.mktemp("staging") / "run"
    with collecting("run", folder) as collector:
        assert collector
        for kind, data, size in events:
            if kind == "begin":
                collector.begin(data, size)
            elif kind == "write" and collector._current:  # the session sends no more than was announced
                collector.write(data[: collector._current.left])
            elif kind == "refused":
                collector.refused(data, "link")
        kept(collector)
    assert not folder.exists()


# Through a whole run


async def run_guest(
    tmp_path: Path, program: Callable[[Guest], Awaitable[None]]
) -> tuple[ExecutionResult, FakeRecord]:
    record = FakeRecord(folder=tmp_path)
    policy = Policy(artifact_count=3, artifact_limit=1024, artifact_total_limit=1536)
    async with FakeEngine(plays(program)) as engine:
        executor = Executor(Configuration(policy=policy), engine, record, origin="cli")
        result = await executor.execute(ExecutionRequest(language="python", code="pass"))
    return result, record


LIES: dict[str, Callable[[Guest], Awaitable[object]]] = {
    "more files than were asked for": lambda guest: _each(
        guest.come_out(b"%d" % number, b"") for number in range(4)
    ),
    "a larger file than may be": lambda guest: guest.say(b"a", b"1025 big"),
    "a file of eight terabytes": lambda guest: guest.say(b"a", b"8796093022208 sparse"),
    "more bytes in all than may be": lambda guest: _each(
        guest.come_out(n, b"x" * 1000) for n in (b"1", b"2")
    ),
    "more bytes than it said": lambda guest: _each((guest.say(b"a", b"3 f"), guest.say(b"d", b"four"))),
    "no bytes at all, for ever": lambda guest: _each((guest.say(b"a", b"3 f"), guest.say(b"d", b""))),
    "a size that is no number": lambda guest: guest.say(b"a", b"-1 f"),
    "a size beyond all numbers": lambda guest: guest.say(b"a", b"9" * 30 + b" f"),
    "no name": lambda guest: guest.say(b"a", b"3 "),
    "a name longer than any": lambda guest: guest.say(b"a", b"0 " + b"n" * 1025),
    "content of no file": lambda guest: guest.say(b"d", b"data"),
    "another reason than there are": lambda guest: guest.say(b"r", b"because name"),
    "output after the end": lambda guest: guest.print(b"more"),
    "a second end": lambda guest: guest.exit(),
    "a frame without the token": lambda guest: guest.process.write(Guest.frame(bytes(16), b"a", b"0 f")),
    "nothing more": lambda guest: _each(()),
}


async def _each(steps: Iterable[Awaitable[None]]) -> None:
    for step in steps:
        await step


@pytest.mark.anyio
@pytest.mark.parametrize("lie", LIES)
async def test_a_guest_that_lies_about_files_loses_the_rest_and_neither_the_result_nor_the_good_ones(
    tmp_path: Path, lie: str
) -> None:
    async def program(guest: Guest) -> None:
        await guest.print(b"printed\n")
        await guest.exit(stdout=8)
        await guest.come_out(b"good", b"good")
        await LIES[lie](guest)

    result, record = await run_guest(tmp_path, program)
    assert (result.status, result.exit_code, result.stdout) == ("exited", 0, "printed\n")
    assert record.files["artifact:good"] == b"good"
    assert sum(map(len, record.files.values())) <= 1536
    assert len(record.files) <= 3
    assert not list(tmp_path.iterdir())


# Copied out for a person


def result_of(*paths: str) -> ExecutionResult:
    return ExecutionResult(
        run_id="run",
        status="exited",
        exit_code=0,
        stdout="",
        stderr="",
        stdout_bytes=0,
        stderr_bytes=0,
        truncated=False,
        duration_ms=1,
        artifacts=tuple(Artifact(path=path, size=4, mime_type="", sha256="", uri="") for path in paths),
    )


def record_of(*paths: str) -> FakeRecord:
    record = FakeRecord()
    record.files = {f"artifact:{path}": b"new\n" for path in paths}
    return record


@pytest.mark.anyio
async def test_files_are_copied_into_folders_that_are_made(tmp_path: Path) -> None:
    paths = ("a.txt", "sub/b.txt", "sub/deeper/c.txt")
    assert await copy_out(result_of(*paths), record_of(*paths), tmp_path / "made/here") == []
    found = {str(p.relative_to(tmp_path / "made/here")) for p in tmp_path.rglob("*.txt")}
    assert found == set(paths)


@pytest.mark.anyio
async def test_nothing_that_is_there_is_replaced_and_the_rest_is_copied(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "file").write_text("not a folder")
    paths = ("mine", "file/x", "new")
    problems = await copy_out(result_of(*paths), record_of(*paths), tmp_path)
    assert problems == [f"{tmp_path}/mine: file exists", f"{tmp_path}/file/x: not a directory"]
    assert (tmp_path / "mine").read_text() == "mine"
    assert (tmp_path / "new").read_text() == "new\n"


@pytest.mark.anyio
async def test_no_link_in_the_folder_leads_a_file_out_of_it(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir()
    folder.mkdir()
    (folder / "up").symlink_to(outside)
    (folder / "dangling").symlink_to(outside / "made")
    paths = ("up/x", "dangling")
    problems = await copy_out(result_of(*paths), record_of(*paths), folder)
    assert len(problems) == 2
    assert not list(outside.iterdir())


@pytest.mark.parametrize("path", ["../x", "/tmp/x", "a/../../x", "", ".", "a\0b"])
def test_a_path_that_leaves_the_folder_is_not_written(tmp_path: Path, path: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    root = os.open(folder, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="not a path"):
            place(root, path, b"x")
    finally:
        os.close(root)
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


@pytest.mark.anyio
async def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SandboxError, match="files cannot be copied to"):
        await copy_out(result_of("a"), record_of("a"), tmp_path / "file/folder")


@pytest.mark.anyio
async def test_a_run_without_files_makes_no_folder(tmp_path: Path) -> None:
    assert await copy_out(result_of(), record_of(), tmp_path / "folder") == []
    assert not (tmp_path / "folder").exists()


def test_a_disk_that_is_full_leaves_no_half_of_a_file(tmp_path: Path) -> None:
    root = os.open(tmp_path, os.O_RDONLY)
    try:
        with files_of_at_most(1000), pytest.raises(OSError, match="File too large"):
            place(root, "big", b"x" * 100_000)
    finally:
        os.close(root)
    assert not list(tmp_path.iterdir())
