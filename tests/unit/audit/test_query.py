"""What ran last month, with what, and what came of it."""

from __future__ import annotations

import hashlib
import io
import json
import random
import secrets
import tarfile
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import hypothesis
import pytest
from hypothesis import strategies as st

from mcp_sandbox.audit import query, search
from mcp_sandbox.audit.export import archive, json_lines
from mcp_sandbox.audit.folder import Folder
from mcp_sandbox.audit.query import reading
from mcp_sandbox.audit.record import Caller, Content
from mcp_sandbox.audit.run_id import name_of, range_of
from mcp_sandbox.audit.store import AuditStore
from mcp_sandbox.errors import AuditError, EngineUnreachable, RequestRefused
from mcp_sandbox.model import Blocked, ExecutionResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from mcp_sandbox.audit.record import Opening

    Run = Callable[..., Awaitable[str]]

pytestmark = pytest.mark.anyio

WORDS = ("import ", "Import ", "json\n", "x", " in ", "%", '"', "é", "_", "\\", "a" * 40)

NOW = datetime(2026, 3, 1, tzinfo=UTC)

PLOT = {
    "path": "out/plot.png",
    "size": 3,
    "mime_type": "image/png",
    "sha256": "ab" * 32,
    "uri": "artifact://x",
}


class Clock:
    def __init__(self) -> None:
        self.now = NOW.timestamp()

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def names(folder: Path, run: Run, clock: Clock) -> list[str]:
    """Five runs, one day apart, the newest now."""
    store = AuditStore(folder, clock=clock)
    clock.now -= 4 * 86400
    names = []
    for changes in (
        {"code": "import os\nprint('100%_\\\\done')"},
        {"code": 'print("Zoë")', "ended": {"artifacts": [PLOT]}},
        {"workspace": "other", "ended": {"exit_code": 1}},
        {"workspace": "other", "ended": {"status": "timed_out", "exit_code": None}},
        {
            "code": "a" * 70_000 + "needle",
            "ended": {"artifacts": [{**PLOT, "path": "plot.png", "sha256": "cd" * 32}]},
        },
    ):
        names.append(await run(store, **changes))
        clock.now += 86400
    await store.aclose()
    return names


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=[0, query._FEW], ids=["by index", "one by one"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches take two ways, by how many runs there are; both must find the same."""
    monkeypatch.setattr(query, "_FEW", request.param)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(
    ("question", "found"),
    [
        ({}, [4, 3, 2, 1, 0]),
        ({"limit": 2}, [4, 3]),
        ({"limit": 0}, []),
        ({"workspace": "other"}, [3, 2]),
        ({"workspace": "nowhere"}, []),
        ({"status": "timed_out"}, [3]),
        ({"workspace": "papers", "status": "timed_out"}, []),
        ({"since": NOW - timedelta(days=1.5)}, [4, 3]),
        ({"since": NOW + timedelta(days=1)}, []),
        ({"since": datetime(1969, 1, 1, tzinfo=UTC)}, [4, 3, 2, 1, 0]),
        ({"code_contains": "PRINT("}, [3, 2, 1, 0]),
        ({"code_contains": "import os\nprint"}, [0]),
        ({"code_contains": "100%_\\\\"}, [0]),
        ({"code_contains": "100__"}, []),
        ({"code_contains": '"Zoë"'}, [1]),
        ({"code_contains": "print(\0"}, [3, 2, 1, 0]),
        ({"code_contains": "print", "workspace": "other"}, [3, 2]),
        ({"code_contains": '" OR "print'}, []),
        ({"artifact": "plot.png"}, [4, 1]),
        ({"artifact": "out/plot.png"}, [1]),
        ({"artifact": "cd" * 32}, [4]),
        ({"artifact": "plot.png", "workspace": "other"}, []),
        ({"artifact": "plot.png", "code_contains": "Zoë"}, [1]),
        ({"artifact": "plot%"}, []),
        ({"workspace": "\ud800", "artifact": "\ud800", "code_contains": "\ud800\ud800\ud800"}, []),
    ],
)
async def test_runs_are_found_newest_first(
    names: list[str], folder: Path, question: dict[str, object], found: list[int]
):
    listed = await AuditStore(folder).list(**question)
    assert [names.index(one.run_id) for one in listed] == found


@pytest.fixture
async def programs(folder: Path, run: Run) -> dict[str, str]:
    """Programs of few words in every order, by the names of their runs, oldest first."""
    store = AuditStore(folder)
    chance = random.Random(5)
    programs = {}
    for _ in range(60):
        code = "".join(chance.choices(WORDS, k=chance.randrange(1, 30)))
        programs[await run(store, code=code)] = code
    await store.aclose()
    return programs


async def test_a_search_finds_every_program_that_has_the_text_and_no_other(
    programs: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(query, "_FEW", 0)
    found = set()

    @hypothesis.given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map("".join))
    def searches(text: str) -> None:
        hypothesis.assume(len(text) >= search.SHORTEST)
        having = [name for name, code in programs.items() if text.lower() in code.lower()]
        found.update(having)
        assert [one.run_id for one in reader.list(code_contains=text, limit=100)] == having[::-1]

    with reading(Folder(folder)) as reader:
        searches()
    assert found


async def test_a_search_that_is_too_short_is_refused(names: list[str], folder: Path):
    with pytest.raises(RequestRefused, match="3 characters"):
        await AuditStore(folder).list(code_contains="ab")


async def test_a_list_tells_when_and_how(names: list[str], folder: Path):
    first, second = (await AuditStore(folder).list(limit=2))[:2]
    assert (first.opened_at, first.status, first.exit_code) == (NOW, "exited", 0)
    assert (second.status, second.exit_code, second.duration_ms) == ("timed_out", None, 12)


async def test_any_unambiguous_prefix_names_a_run(names: list[str], folder: Path):
    store = AuditStore(folder)
    for name in names:
        others = [other for other in names if other != name]
        shortest = next(
            length for length in range(1, 14) if not any(other.startswith(name[:length]) for other in others)
        )
        assert (await store.get(name[:shortest])).summary.run_id == name
        assert (await store.get(name.upper().replace("0", "O").replace("1", "L"))).summary.run_id == name
    assert (await store.get("last")).summary.run_id == names[-1]


@pytest.mark.parametrize(
    "prefix", ["", "7", "u", "zz", "%", "last ", "0" * 14, "\ud800", "'; --", "0" * 13, "z" * 13]
)
async def test_a_prefix_of_no_run_is_refused(names: list[str], folder: Path, prefix: str):
    with pytest.raises(RequestRefused, match="No run on the record"):
        await AuditStore(folder).get(prefix)


async def test_an_ambiguous_prefix_is_refused_with_the_names(names: list[str], folder: Path):
    with pytest.raises(RequestRefused, match=names[-1]):
        await AuditStore(folder).get(names[0][:2])


def test_every_number_has_one_name_and_the_names_sort_as_the_numbers():
    numbers = sorted([0, 1, (1 << 63) - 1, *(secrets.randbits(63) for _ in range(500))])
    names = [name_of(number) for number in numbers]
    assert names == sorted(names)
    assert [range_of(name) for name in names] == [(number, number) for number in numbers]
    first, last = range_of(names[7][:4])
    assert first <= numbers[7] <= last


async def test_all_of_a_run_can_be_read_back(
    store: AuditStore, opening: Opening, result: Callable[..., ExecutionResult]
):
    plot = {**PLOT, "sha256": "ef" * 32}
    async with store.entry(opening) as entry:
        entry.note(image_id="sha256:1")
        ended = result(
            entry.run_id,
            stdout="4…2\n",
            stderr="",
            truncated=True,
            artifacts=[plot],
            blocked=[Blocked(host="example.com", port=443, reason="not allowed")],
            hint="Less output.",
        )
        entry.finish(ended, stdout=b"4\xff2\n" * 20_000, stderr=b"warned")
    record = await store.get(entry.run_id)
    assert record.code == opening.code
    assert record.policy == opening.policy
    assert record.opening["data"]["timeout_seconds"] == 5
    assert record.opening["data"]["environment"] == ["LANG"]
    assert record.closing
    assert record.closing["data"]["facts"] == {"image_id": "sha256:1"}
    assert await store.result(entry.run_id) == ended
    assert await store.output(entry.run_id) == b"4\xff2\n" * 20_000
    assert await store.output(entry.run_id, "stderr") == b"warned"


async def test_a_run_without_a_result_has_none_and_no_output(store: AuditStore, opening: Opening):
    async with store.entry(opening) as entry:
        assert await store.result(entry.run_id) is None
        assert (await store.get(entry.run_id)).closing is None
        assert await store.output(entry.run_id) == b""
    with pytest.raises(EngineUnreachable):
        async with store.entry(opening) as entry:
            raise EngineUnreachable("Nothing answers.")
    assert await store.result(entry.run_id) is None


async def test_a_malformed_call_is_listed_with_who_made_it(store: AuditStore):
    run_id = await store.refused(
        {"code": 7}, RequestRefused("`code` is no text."), Caller(workspace="papers")
    )
    record = await store.get(run_id)
    assert (record.summary.status, record.summary.workspace, record.summary.language) == (
        "refused",
        "papers",
        "",
    )
    assert record.opening["data"]["error"] == {"code": "refused", "message": "`code` is no text."}
    assert record.contents["arguments"] == len('{"code":7}')


async def test_where_nothing_was_recorded_a_question_says_so(folder: Path):
    with pytest.raises(AuditError, match="There is no run record"):
        await AuditStore(folder).list()
    assert list(folder.parent.glob("*")) == []


async def test_stats_count_by_workspace(names: list[str], folder: Path):
    with query.reading(Folder(folder)) as reader:
        papers, other = reader.stats()
    assert (papers.workspace, papers.runs, papers.failed) == ("papers", 3, 0)
    assert (other.runs, other.failed, other.statuses) == (2, 2, {"exited": 1, "timed_out": 1})
    assert (other.median_ms, other.p95_ms, other.longest_ms) == (12, 12, 12)


async def test_json_lines_carry_what_each_hash_covers(names: list[str], folder: Path):
    with query.reading(Folder(folder)) as reader:
        lines = list(json_lines(reader))
    previous = ""
    for number, line in enumerate(lines):
        said = json.loads(line)
        text = line[line.index('"record":') + len('"record":') : line.rindex(',"contents":')]
        assert hashlib.sha256(text.encode()).hexdigest() == said["hash"]
        assert (said["seq"], said["record"]["previous"]) == (number, previous)
        previous = said["hash"]
    assert len(lines) == 12
    assert json.loads(lines[1])["contents"]["code"] == "import os\nprint('100%_\\\\done')"
    assert json.loads(lines[1])["contents"]["policy"] == {"network": "none"}
    assert json.loads(lines[2])["contents"]["stdout"] == "42\n"


async def test_an_archive_holds_a_run_and_the_sums_to_check_it_by(names: list[str], folder: Path):
    copies = [io.BytesIO(), io.BytesIO()]
    with query.reading(Folder(folder)) as reader:
        for copy in copies:
            archive(reader, names[1], copy)
        record = reader.get(names[1])
    assert copies[0].getvalue() == copies[1].getvalue()
    copies[0].seek(0)
    with tarfile.open(fileobj=copies[0]) as tar:
        files = {member.name: tar.extractfile(member).read() for member in tar}
    assert {name.partition("/")[0] for name in files} == {names[1]}
    files = {name.partition("/")[2]: data for name, data in files.items()}
    assert files["code.py"] == 'print("Zoë")'.encode()
    assert files["stdout"] == b"42\n"
    sums = dict(line.split("  ")[::-1] for line in files.pop("SHA256SUMS").decode().splitlines())
    assert sums == {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    assert sums["opening.json"] == record.closing["previous"]


async def test_no_recorded_name_leads_out_of_an_archive(
    store: AuditStore, opening: Opening, result: Callable[..., ExecutionResult]
):
    hostile = [
        "artifact:../../etc/passwd",
        "artifact:/etc/passwd",
        "artifact:a\\b\nc",
        "../x",
        "artifact:..",
        "/",
    ]
    async with store.entry(opening) as entry:
        contents = [Content.of(role, b"x") for role in hostile]
        entry.finish(result(entry.run_id), stdout=b"", stderr=b"", contents=contents)
    target = io.BytesIO()
    with query.reading(Folder(store._folder.path)) as reader:
        archive(reader, "last", target)
    target.seek(0)
    with tarfile.open(fileobj=target) as tar:
        for member in tar:
            assert tarfile.data_filter(member, "/somewhere").name == member.name
            assert member.name.startswith(f"{entry.run_id}/")
            assert ".." not in member.name.split("/")
