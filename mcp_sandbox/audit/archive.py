"""One run read back from the tar file that `export` writes. Blocking.

The file may come from anywhere. Nothing is unpacked: members are read in their order, by exactly the names that the
run's own records call for, and within bounds; everything must agree with the sums and with the records' hashes.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Self

from pydantic import ValidationError

from mcp_sandbox.audit.export import file_name, sum_line
from mcp_sandbox.audit.query import RunRecord, RunSummary
from mcp_sandbox.audit.record import as_text, canonical, read_body, sha256
from mcp_sandbox.audit.run_id import LENGTH, name_of, range_of
from mcp_sandbox.errors import RequestRefused
from mcp_sandbox.model import ExecutionResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_MEMBERS = 110_000
"""More than a run can have: 100,000 files that came out, 1000 that went in, and its records."""
MAX_KEPT_BYTES = 512 << 20
"""Of records, program, input and output together; files that came out are only hashed."""
MAX_MEMBER_BYTES = 512 << 30
MAX_HEADER_BYTES = 16 << 10
"""Of one extended header: a long path needs a tenth of it."""
_SUMS = "SHA256SUMS"
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Archived:
    """A run as its archive tells it."""

    run: RunRecord
    result: ExecutionResult | None
    contents: Mapping[str, bytes]
    """By role; files that came out are not among them."""


class _Header(tarfile.TarInfo):
    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Read a header, and refuse what the archive of a run has no use for before more of it is read."""
        header = super().frombuf(buf, encoding, errors)
        extended = header.type == tarfile.XHDTYPE
        if header.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) and not extended:
            raise _refusal("it holds something that is no file")
        if not 0 <= header.size <= (MAX_HEADER_BYTES if extended else MAX_MEMBER_BYTES):
            raise _refusal("it holds something too large")
        return header


def read_archive(file: IO[bytes]) -> Archived:
    """Return the run in a tar file.

    Raises:
        RequestRefused: It is not as `export` writes it, was altered, or cut short.
    """
    try:
        run_id, kept, digests = _members(file)
        return _run(run_id, kept, digests)
    except (tarfile.TarError, ValidationError, ValueError, LookupError, TypeError, RecursionError, OSError):
        # What a file holds that is none of ours may fail anywhere; its words are not to be repeated.
        raise _refusal("it cannot be read as one") from None


def _refusal(why: str) -> RequestRefused:
    return RequestRefused(
        f"this is no whole export of a run: {why}.",
        next_step="Export it again: `mcp-sandbox runs export RUN -o run.tar`.",
    )


def _members(file: IO[bytes]) -> tuple[str, dict[str, bytes], dict[str, str]]:
    """Return the run's name, the members that are kept, and the hashes of all, once they agree with the sums."""
    kept: dict[str, bytes] = {}
    digests: dict[str, str] = {}
    run_id = ""
    left = MAX_KEPT_BYTES
    with tarfile.open(fileobj=file, mode="r|", tarinfo=_Header) as tar:
        for member in tar:
            folder, _, name = member.name.partition("/")
            run_id = run_id or folder
            if folder != run_id or not name or name in digests or len(digests) == MAX_MEMBERS:
                raise _refusal("a member is not where it belongs")
            if not member.isreg() or member.issparse() or member.size < 0 or _SUMS in digests:
                raise _refusal("a member is not what it should be")
            digest, chunks = hashlib.sha256(), bytearray()
            for data in _read(tar, member):
                digest.update(data)
                if not name.startswith("artifacts/"):
                    left -= len(data)
                    if left < 0:
                        raise _refusal("it holds more than a run can")
                    chunks += data
            digests[name] = digest.hexdigest()
            if not name.startswith("artifacts/"):
                kept[name] = bytes(chunks)
            tar.members.clear()  # type: ignore[attr-defined]  # it would remember every one
    sums = "".join(sum_line(name, value) for name, value in digests.items() if name != _SUMS)
    if kept.get(_SUMS) != sums.encode():
        raise _refusal(f"its contents are not those that {_SUMS} names")
    return run_id, kept, digests


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    reader = tar.extractfile(member)
    left = member.size
    while left and reader is not None:
        data = reader.read(min(left, _CHUNK))
        if not data:
            raise _refusal("it was cut short")
        left -= len(data)
        yield data


def _run(run_id: str, kept: dict[str, bytes], digests: dict[str, str]) -> Archived:
    summary = RunSummary.model_validate_json(kept["run.json"])
    opening = read_body(kept["opening.json"].decode("ascii"))
    closing = read_body(kept["closing.json"].decode("ascii")) if "closing.json" in kept else None
    policy: dict[str, Any] = json.loads(kept["policy.json"])
    if {run_id} != {
        summary.run_id,
        _own_name(run_id),
        *(said["data"]["run_id"] for said in (opening, closing) if said),
    }:
        raise _refusal("its records are of different runs")
    if opening["data"].get("policy_sha256", "") != (
        sha256(canonical(policy).encode("ascii")) if policy else ""
    ):
        raise _refusal("its policy is not the one that the record names")
    names = {"run.json", "opening.json", "policy.json", _SUMS} | ({"closing.json"} if closing else set())
    contents: dict[str, bytes] = {}
    sizes: dict[str, int] = {}
    for role, said in _named(opening, closing):
        name = file_name(role, summary.language)
        if digests.get(name) != said["sha256"]:
            raise _refusal("a content is not the one that the record names")
        names.add(name)
        sizes[role] = int(said["bytes"])
        if name in kept:
            contents[role] = kept[name]
    if names != digests.keys():
        raise _refusal("it holds what no record names, or lacks what one names")
    run = RunRecord(
        summary=summary,
        server=str(opening["server"]),
        opening=opening,
        closing=closing,
        policy=policy,
        code=as_text(contents.get("code", b"")),
        contents=sizes,
    )
    return Archived(run, _result(closing, contents), contents)


def _own_name(run_id: str) -> str:
    """Return the run's name as we would write it."""
    numbers = range_of(run_id) if len(run_id) == LENGTH else None
    return name_of(numbers[0]) if numbers else ""


def _named(*records: dict[str, Any] | None) -> Iterator[tuple[str, dict[str, Any]]]:
    for record in records:
        yield from record["data"]["contents"].items() if record else ()


def _result(closing: dict[str, Any] | None, contents: dict[str, bytes]) -> ExecutionResult | None:
    said = closing["data"].get("result") if closing else None
    if said is None:
        return None
    streams = {
        stream: as_text(contents.get(f"{stream}_shown", contents.get(stream, b"")))
        for stream in ("stdout", "stderr")
    }
    return ExecutionResult.model_validate({**said, **streams})
