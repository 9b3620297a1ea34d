"""An exported run, read back: what `export` wrote comes back whole; whatever was done to it since is refused."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from typing import TYPE_CHECKING

import anyio
import pytest

from mcp_sandbox.audit.archive import MAX_HEADER_BYTES, read_archive
from mcp_sandbox.audit.export import archive
from mcp_sandbox.audit.folder import Folder
from mcp_sandbox.audit.query import reading
from mcp_sandbox.audit.record import Content
from mcp_sandbox.audit.store import AuditStore
from mcp_sandbox.errors import RequestRefused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mcp_sandbox.audit.record import Opening
    from mcp_sandbox.model import ExecutionResult

    Members = dict[str, bytes]


@pytest.fixture
def exported(opening: Opening, result: Callable[..., ExecutionResult], folder: Path) -> bytes:
    async def record() -> None:
        store = AuditStore(folder)
        given = opening.model_copy(update={"stdin": b"in\xff", "given": (("a b/ü.txt", b"given"),)})
        async with store.entry(given) as entry:
            entry.note(image="sha256:0")
            long = "d/" * 90 + "made"
            entry.finish(
                result(entry.run_id),
                stdout=b"42\n",
                stderr=b"",
                contents=[Content.of("manifest", b"[]"), Content.of(f"artifact:{long}", b"made")],
            )
        await store.aclose()

    anyio.run(record)
    target = io.BytesIO()
    with reading(Folder(folder)) as reader:
        archive(reader, "last", target)
    return target.getvalue()


def members(exported: bytes) -> Members:
    with tarfile.open(fileobj=io.BytesIO(exported)) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


def packed(members: Members, *, sums: bool = True) -> bytes:
    """Return an archive of these members, its sums made anew."""
    folder = next(iter(members)).partition("/")[0]
    name = f"{folder}/SHA256SUMS"
    if sums:
        members = {each: data for each, data in members.items() if each != name}
        lines = [
            f"{hashlib.sha256(data).hexdigest()}  {each.removeprefix(folder + '/')}\n"
            for each, data in members.items()
        ]
        members[name] = "".join(lines).encode()
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        for each, data in members.items():
            info = tarfile.TarInfo(each)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return target.getvalue()


def refused(data: bytes) -> str:
    with pytest.raises(RequestRefused, match="this is no whole export of a run") as refusal:
        read_archive(io.BytesIO(data))
    return refusal.value.message


def test_a_run_comes_back_with_all_that_a_replay_needs(exported: bytes) -> None:
    for data in (exported, packed(members(exported))):
        archived = read_archive(io.BytesIO(data))
        assert archived.run.code == "print(6 * 7)"
        assert archived.result is not None
        assert archived.result.stdout == "42\n"
        contents = dict(archived.contents)
        assert contents.pop("code") == b"print(6 * 7)"
        assert contents == {
            "stdin": b"in\xff",
            "file:a b/ü.txt": b"given",
            "stdout": b"42\n",
            "stderr": b"",
            "manifest": b"[]",
        }


def test_an_archive_that_was_cut_short_anywhere_is_refused(exported: bytes) -> None:
    end = exported.rfind(b"SHA256SUMS")
    for length in range(0, end, 331):
        refused(exported[:length])


def test_a_byte_that_was_changed_anywhere_in_a_member_is_refused(exported: bytes) -> None:
    for name, data in members(exported).items():
        if data:
            changed = members(exported)
            changed[name] = bytes([data[0] ^ 1]) + data[1:]
            refused(packed(changed, sums=False))


@pytest.mark.parametrize("name", ["code.py", "stdin", "files/a b/ü.txt", "stdout", "manifest", "policy.json"])
def test_a_content_that_was_changed_with_its_sum_is_not_what_the_record_names(
    exported: bytes, name: str
) -> None:
    changed = members(exported)
    (full,) = [each for each in changed if each.endswith(f"/{name}")]
    changed[full] = b'{"memory": 1}' if name == "policy.json" else b"print('evil')"
    assert "the record names" in refused(packed(changed))


@pytest.mark.parametrize(
    "name",
    ["../evil", "/etc/evil", "{run}/../evil", "{run}/./code.py", "{run}/artifacts/../../evil", "other/code.py",
     "{run}", "{run}/", "{run}/extra", "{run}/artifacts/extra"],
)  # fmt: skip
def test_a_member_that_no_record_names_is_refused_wherever_it_would_land(
    exported: bytes, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    found = members(exported)
    run = next(iter(found)).partition("/")[0]
    refused(packed({**found, name.format(run=run): b"evil"}))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_member_that_is_left_out_or_stands_there_twice_is_refused(exported: bytes) -> None:
    for name in members(exported):
        rest = members(exported)
        del rest[name]
        refused(packed(rest, sums=not name.endswith("SHA256SUMS")))
    # Twice: a reader that takes the last one would run what no sum was of.
    found = members(exported)
    (code,) = [name for name in found if name.endswith("code.py")]
    evil = io.BytesIO()
    with tarfile.open(fileobj=evil, mode="w") as tar:
        for name, data in [(code, b"evil"), *found.items()]:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    refused(evil.getvalue())


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.CONTTYPE,
     tarfile.GNUTYPE_SPARSE, tarfile.GNUTYPE_LONGNAME, tarfile.XGLTYPE, b"?"],
)  # fmt: skip
def test_what_is_no_plain_file_is_refused(exported: bytes, kind: bytes) -> None:
    run = next(iter(members(exported))).partition("/")[0]
    info = tarfile.TarInfo(f"{run}/stdin")
    info.type, info.linkname = kind, "/etc/passwd"
    assert "something that is no file" in refused(info.tobuf(tarfile.GNU_FORMAT) + exported)


def test_sizes_that_are_not_there_take_no_memory(exported: bytes) -> None:
    run = next(iter(members(exported))).partition("/")[0]
    info = tarfile.TarInfo(f"{run}/stdin")
    for kind, size in ((tarfile.XHDTYPE, MAX_HEADER_BYTES + 1), (tarfile.REGTYPE, 1 << 60)):
        info.type, info.size = kind, size
        assert "too large" in refused(info.tobuf(tarfile.GNU_FORMAT))
    info.type, info.size = tarfile.REGTYPE, 1 << 38
    refused(info.tobuf(tarfile.GNU_FORMAT) + bytes(1024))


@pytest.mark.parametrize("name", ["run.json", "opening.json", "closing.json", "policy.json"])
@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "[" * 100_000, '{"data": {}}', "\xff"])
def test_records_that_are_none_are_refused_without_their_words(exported: bytes, name: str, text: str) -> None:
    changed = members(exported)
    (full,) = [each for each in changed if each.endswith(f"/{name}")]
    changed[full] = text.encode("latin-1")
    refused(packed(changed))


def test_records_of_two_runs_are_refused(exported: bytes) -> None:
    changed = members(exported)
    (full,) = [each for each in changed if each.endswith("/opening.json")]
    opening = json.loads(changed[full])
    opening["data"]["run_id"] = "0" * 13
    changed[full] = json.dumps(opening).encode()
    assert "different runs" in refused(packed(changed))


@pytest.mark.parametrize("data", [b"", b"\0" * 10_240, b"no tar at all", b"\x1f\x8b" + b"x" * 600])
def test_what_is_no_archive_is_refused(data: bytes) -> None:
    refused(data)
