"""Every egress decision can be found again, and what `mcp-sandbox policy log` says of it."""

from __future__ import annotations

import json
import signal
import sys
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from click.testing import CliRunner

from mcp_sandbox.audit.connections import ConnectionLog
from mcp_sandbox.audit.decisions import decisions
from mcp_sandbox.audit.folder import Folder
from mcp_sandbox.audit.query import reading
from mcp_sandbox.audit.schema import _FIRST, connect
from mcp_sandbox.audit.store import AuditStore, Entry
from mcp_sandbox.audit.verify import verify
from mcp_sandbox.cli import cli
from mcp_sandbox.egress.record import EgressRecord
from mcp_sandbox.errors import AuditError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from click.testing import Result

    from mcp_sandbox.audit.record import Opening
    from mcp_sandbox.model import ExecutionResult

pytestmark = pytest.mark.anyio


MOMENTS = count()


def made(host: str, verdict: str = "allowed", port: int = 443, **more: Any) -> EgressRecord:
    return EgressRecord.model_validate(
        {
            "time": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC) + timedelta(milliseconds=next(MOMENTS)),
            "host": host,
            "port": port,
            "verdict": verdict,
            "rule": host if verdict == "allowed" else None,
            "reason": f'allowed by "{host}"' if verdict == "allowed" else f"{host} is refused",
            "bytes_up": 12_345,
            "bytes_down": 67_890,
            "duration_ms": 250,
            **more,
        }
    )


@pytest.fixture
def reaching(opening: Opening, result: Callable[..., ExecutionResult]) -> Callable[..., Awaitable[str]]:
    """Record a finished run that made these connections."""

    async def record(store: AuditStore, *connections: EgressRecord, workspace: str = "papers") -> str:
        async with store.entry(opening.model_copy(update={"workspace": workspace})) as entry:
            if connections:
                entry.note(egress=[one.model_dump(mode="json") for one in connections])
            # What a program prints looks like the key that is looked for.
            entry.finish(result(entry.run_id, stdout='"egress":[{}]'), stdout=b'"egress":[{}]', stderr=b"")
        return entry.run_id

    return record


@pytest.fixture
async def three(store: AuditStore, reaching: Callable[..., Awaitable[str]]) -> list[str]:
    """Three runs; the second one reached nothing."""
    return [
        await reaching(store, *reversed((made("a.example"), made("evil.example", "refused")))),
        await reaching(store),
        await reaching(store, made("b.a.example", port=8443), made("down.example", "failed"), workspace="w"),
    ]


@pytest.fixture
def log(tmp_path: Path, folder: Path) -> Callable[..., Result]:
    (tmp_path / "config.toml").write_text(f'[audit]\npath = "{folder}"\n')

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(
            cli, ["policy", "log", "--config", str(tmp_path / "config.toml"), *arguments]
        )

    return call


def hosts(shown: Result) -> list[str]:
    assert shown.exit_code == 0, shown.output
    return [one["host"] for one in json.loads(shown.stdout)] if shown.stdout else []


async def test_all_are_there_the_latest_first(three: list[str], log: Callable[..., Result]) -> None:
    assert hosts(log("--json")) == ["down.example", "b.a.example", "evil.example", "a.example"]
    (latest, *_) = json.loads(log("--json").stdout)
    assert latest["run_id"] == three[2]
    assert latest["workspace"] == "w"
    assert (latest["bytes_up"], latest["bytes_down"], latest["duration_ms"]) == (12_345, 67_890, 250)
    assert latest["time"].startswith("2026-01-02T03:04:05")


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--limit", "2"], ["down.example", "b.a.example"]),
        (["--workspace", "papers"], ["evil.example", "a.example"]),
        (["--workspace", "nobody"], []),
        (["--verdict", "refused"], ["evil.example"]),
        (["--verdict", "failed"], ["down.example"]),
        (["--host", "A.example."], ["a.example"]),
        (["--host", "*.a.example"], ["b.a.example"]),
        (["--run", "last"], ["down.example", "b.a.example"]),
        (["--since", "1h", "--host", "a.example"], ["a.example"]),
        (["--since", "2999-01-01"], []),
    ],
)
async def test_a_person_can_ask_for_some(
    three: list[str], log: Callable[..., Result], arguments: list[str], wanted: list[str]
) -> None:
    assert hosts(log("--json", *arguments)) == wanted


async def test_a_table_has_one_line_for_each(three: list[str], log: Callable[..., Result]) -> None:
    heading, *lines = (" ".join(line.split()) for line in log().stdout.splitlines())
    assert heading == "time run verdict host port up down duration rule or reason"
    assert lines[3].endswith(f"{three[0]} allowed a.example 443 12,345 67,890 250 ms a.example")
    assert lines[2].endswith("refused evil.example 443 12,345 67,890 250 ms evil.example is refused")


async def test_of_a_record_without_any_it_says_so(
    store: AuditStore, reaching: Callable[..., Awaitable[str]], log: Callable[..., Result]
) -> None:
    await reaching(store)
    assert log().output == "No egress decision on the record fits.\n"


async def test_an_altered_decision_is_told_of(
    three: list[str], tamper: Callable[..., None], log: Callable[..., Result]
) -> None:
    tamper('UPDATE records SET body = replace(body, \'"verdict":"failed"\', \'"verdict":"fine"\')')
    shown = log()
    assert shown.exit_code == 125
    assert f"The end of {three[2]} " in shown.output
    assert "runs verify" in shown.output


async def test_runs_that_reached_nothing_are_not_read(three: list[str], folder: Path) -> None:
    with reading(Folder(folder)) as reader:
        assert len(list(decisions(reader))) == 4
        plan = reader.connection.execute(
            "EXPLAIN QUERY PLAN SELECT body FROM records WHERE instr(body, '\"egress\":[') > 0"
            " AND json_extract(body, '$.data.run_id') BETWEEN '' AND '~'"
            " ORDER BY json_extract(body, '$.data.run_id') DESC"
        ).fetchall()
    assert "records_with_egress" in plan[0][3]
    assert not any("TEMP B-TREE" in step[3] for step in plan)


async def test_decisions_from_before_they_were_indexed_are_found(
    store: AuditStore, three: list[str], folder: Path, log: Callable[..., Result]
) -> None:
    await store.aclose()
    connection = connect(folder / "record.sqlite3")
    connection.execute("DROP INDEX records_with_egress")
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    assert "records_with_egress" not in _FIRST
    assert len(hosts(log("--json"))) == 4


async def test_a_pruned_run_takes_its_decisions_with_it(
    store: AuditStore, three: list[str], folder: Path, log: Callable[..., Result]
) -> None:
    from mcp_sandbox.audit.prune import prune

    prune(Folder(folder), older_than=datetime(2999, 1, 1, tzinfo=UTC))
    assert hosts(log("--json")) == []


async def test_no_store_is_an_error(log: Callable[..., Result]) -> None:
    assert log().exit_code == 125
    assert AuditError.code in log().output


DIES = """
import os, signal, sys, anyio
from datetime import UTC, datetime
from pathlib import Path
from mcp_sandbox.audit.connections import ConnectionLog
from mcp_sandbox.audit.record import Opening
from mcp_sandbox.audit.store import AuditStore
from mcp_sandbox.egress.record import EgressRecord

async def main():
    store = AuditStore(Path(sys.argv[1]))
    async with store.entry(Opening(language="shell", code="curl", workspace="papers")) as entry:
        log = ConnectionLog(entry, store.staging(entry.run_id), lambda value: value)
        for host in ("a.example", "b.example"):
            log.add(EgressRecord(time=datetime.now(UTC), host=host, port=443, verdict="allowed", rule=host,
                                 reason="", bytes_up=1, bytes_down=2, duration_ms=3))
        with (store.staging(entry.run_id) / "egress").open("ab") as file:
            file.write(b'{"host":"torn')
        os.kill(os.getpid(), signal.SIGKILL)

anyio.run(main)
"""


async def test_decisions_outlive_a_server_that_is_killed_in_the_middle_of_a_run(
    folder: Path, reaching: Callable[..., Awaitable[str]], log: Callable[..., Result]
) -> None:
    with anyio.fail_after(60):
        died = await anyio.run_process([sys.executable, "-c", DIES, str(folder)], check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    after = AuditStore(folder)
    await reaching(after, made("c.example"))  # the next server closes what the dead one left open
    await after.aclose()
    assert hosts(log("--json")) == ["c.example", "b.example", "a.example"]
    assert verify(Folder(folder)).ok
    assert list((folder / "staging").iterdir()) == []


async def test_a_decision_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Not a directory"):
        ConnectionLog(Entry("run"), tmp_path / "file" / "run", lambda value: value).add(made("a.example"))
