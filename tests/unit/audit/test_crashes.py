"""Servers that are killed, disks that are full, folders that are not what they should be."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

from mcp_sandbox.audit import store as store_module
from mcp_sandbox.audit.folder import Folder
from mcp_sandbox.audit.prune import prune
from mcp_sandbox.audit.rows import INLINE_BYTES
from mcp_sandbox.audit.schema import MIGRATIONS, connect, migrate
from mcp_sandbox.audit.store import AuditStore
from mcp_sandbox.errors import AuditError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from mcp_sandbox.audit.findings import Verification
    from mcp_sandbox.audit.record import Opening

    Run = Callable[..., Awaitable[str]]
    Tamper = Callable[..., None]
    Verified = Callable[..., Verification]

pytestmark = pytest.mark.anyio

SERVER = """
import sys, anyio
from pathlib import Path
from mcp_sandbox.audit.record import Opening
from mcp_sandbox.audit.store import AuditStore
from mcp_sandbox.model import ExecutionResult

def say(*words):
    print(*words, flush=True)

async def one(store, number):
    opening = Opening(language="python", code=f"print({number})", policy={"n": number % 3})
    async with store.entry(opening) as entry:
        say("opened", entry.run_id)
        result = ExecutionResult(
            run_id=entry.run_id, status="exited", exit_code=0, stdout="", stderr="", stdout_bytes=0,
            stderr_bytes=0, truncated=False, duration_ms=1,
        )
        entry.finish(result, stdout=b"x" * (number % 4 * 20_000), stderr=b"")
    say("closed", entry.run_id)

async def main(folder, count):
    store = AuditStore(Path(folder))
    for number in range(count):
        await one(store, number)
    await store.aclose()
"""

FOREVER = f"{SERVER}\nanyio.run(main, sys.argv[1], 1 << 40)"

STUCK = f"""{SERVER}
async def stuck(folder):
    store = AuditStore(Path(folder))
    await one(store, 1)
    async with store.entry(Opening(language="shell", code="sleep 1000")) as entry:
        say("stuck", entry.run_id)
        await anyio.sleep_forever()

anyio.run(stuck, sys.argv[1])
"""


def start(program: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end_all(servers: list[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    """Wait for servers that end on their own, and return their exit codes and errors."""
    ends = []
    try:
        for server in servers:
            _, errors = server.communicate(timeout=60)
            ends.append((server.returncode, errors))
    finally:
        for server in servers:
            server.kill()
            server.communicate(timeout=30)
    return ends


def kill_after(server: subprocess.Popen[str], lines: int) -> list[list[str]]:
    """Let a server write so many lines, kill it, and return all that it wrote."""
    assert server.stdout
    said = []
    try:
        for line in server.stdout:
            said.append(line.split())
            if len(said) == lines:
                server.kill()
    finally:
        server.kill()
        _, errors = server.communicate(timeout=30)
    assert errors == ""
    return [words for words in said if len(words) == 2]


def files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def modes(folder: Path) -> set[str]:
    return {stat.filemode(path.lstat().st_mode) for path in (folder, *folder.rglob("*"))}


def leave(path: Path, data: bytes = b"x") -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)


def link(path: Path, target: Path) -> None:
    path.symlink_to(target)


def content(path: Path) -> bytes:
    return path.read_bytes()


async def statuses(store: AuditStore) -> dict[str, str]:
    return {run.run_id: run.status for run in await store.list(limit=1 << 30)}


async def test_servers_killed_at_any_moment_lose_no_run_that_they_had_acknowledged(
    folder: Path, verified: Verified
):
    chance = random.Random(4)
    said: list[list[str]] = []
    for _ in range(3):
        servers = [start(FOREVER, folder) for _ in range(4)]
        with anyio.fail_after(90):
            async with anyio.create_task_group() as group:

                async def killed(server: subprocess.Popen[str], lines: int) -> None:
                    said.extend(await anyio.to_thread.run_sync(kill_after, server, lines))

                for server in servers:
                    group.start_soon(killed, server, chance.randrange(1, 60))
    assert verified().ok
    store = AuditStore(folder)
    await store.open()
    after = await statuses(store)
    await store.aclose()
    assert {name for word, name in said if word == "opened"} <= after.keys()
    assert {after[name] for word, name in said if word == "closed"} == {"exited"}
    assert set(after.values()) <= {"exited", "lost"}
    verification = verified()
    assert verification.ok
    assert verification.chains > 4


async def test_four_servers_at_once_on_one_store_leave_four_whole_chains(folder: Path, verified: Verified):
    program = f"{SERVER}\nanyio.run(main, sys.argv[1], 50)"
    servers = [start(program, folder) for _ in range(4)]
    assert end_all(servers) == [(0, "")] * 4
    verification = verified()
    assert verification.ok
    assert verification.incomplete == ()
    assert (verification.chains, verification.runs, verification.records) == (4, 200, 408)


async def test_many_runs_at_once_in_one_server_make_one_chain(
    store: AuditStore, run: Run, verified: Verified
):
    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(run, store)
    await store.aclose()
    verification = verified()
    assert verification.ok
    assert (verification.chains, verification.runs) == (1, 50)


async def test_the_next_start_closes_what_a_dead_server_left_open_and_nothing_of_a_living_one(
    folder: Path, opening: Opening, verified: Verified
):
    living = AuditStore(folder)
    async with living.entry(opening) as entry:
        said = kill_after(start(STUCK, folder), 3)
        assert any("died" in line for line in verified().incomplete)
        later = AuditStore(folder)
        await later.open()
        assert await statuses(later) == {said[0][1]: "exited", said[2][1]: "lost", entry.run_id: "open"}
        assert (await later.get(said[2][1])).summary.error == "server_died"
        assert verified().incomplete == ()
        await later.aclose()
    await living.aclose()
    assert verified().ok
    assert list(files(folder / "leases")) == []


async def test_a_server_that_ends_in_order_closes_its_open_runs_and_seals_its_chain(
    store: AuditStore, opening: Opening, verified: Verified
):
    with pytest.raises(AuditError, match="its chain has ended"):
        async with store.entry(opening) as entry:
            await store.aclose()
    assert await statuses(store) == {entry.run_id: "lost"}
    verification = verified()
    assert verification.ok
    assert verification.incomplete == ()
    assert verification.chains == 1


async def test_a_torn_end_of_the_log_costs_the_last_transaction_alone(
    folder: Path, run: Run, verified: Verified
):
    said = kill_after(start(STUCK, folder), 3)
    log = folder / "record.sqlite3-wal"
    os.truncate(log, log.stat().st_size - 7)
    verification = verified()
    assert verification.ok
    assert len(verification.incomplete) == 1
    store = AuditStore(folder)
    await store.open()
    assert await statuses(store) == {said[0][1]: "exited"}
    await run(store)
    await store.aclose()
    assert verified().ok


async def test_what_a_crash_leaves_of_a_content_is_said_and_pruned(
    folder: Path, store: AuditStore, run: Run, verified: Verified
):
    await run(store, stdout=b"x" * (INLINE_BYTES + 1))
    unfinished = folder / "blobs" / "ab" / ".abcdef01.0123.tmp"
    leave(unfinished)
    assert verified().incomplete == ()
    old = time.time() - 7200
    os.utime(unfinished, (old, old))
    left = Folder(folder).blob("cd" * 32)
    leave(left)
    assert "1 files" in verified().incomplete[0]
    os.utime(left, (old, old))
    assert "2 files" in verified().incomplete[0]
    assert prune(Folder(folder), keep_bytes=1 << 40).files == 2
    assert verified().incomplete == ()
    assert verified().ok


IN_A_SMALL_DISK = """
mount -t tmpfs -o size=2m tmpfs "$1" && shift && exec "$@"
"""

FULL = f"""{SERVER}
from mcp_sandbox.audit.folder import Folder
from mcp_sandbox.audit.verify import verify
from mcp_sandbox.errors import AuditError

async def fill(folder):
    folder = Path(folder)
    (folder / "ballast").write_bytes(b"x" * 500_000)
    store = AuditStore(folder / "state")
    say("leading")
    try:
        for number in range(10_000):
            await one(store, number)
    except AuditError as error:
        say(str(error).replace(" ", "_"))
    try:
        async with store.entry(Opening(language="shell", code="x" * 200_000)):
            say("ran unrecorded")
    except AuditError:
        say("refused")
    assert verify(Folder(folder / "state")).ok
    (folder / "ballast").unlink()
    for number in range(3):
        await one(store, 4 * number)
    await store.aclose()
    found = verify(Folder(folder / "state"))
    say("verified" if found.ok and not found.incomplete else found)

anyio.run(fill, sys.argv[1])
"""

needs_namespaces = pytest.mark.skipif(shutil.which("unshare") is None, reason="mounts need Linux namespaces")


def in_a_namespace(script: str, *arguments: object) -> list[str]:
    """Run a shell script as the root of a mount namespace of its own, and return the lines it wrote."""
    command = [
        "unshare",
        "--mount",
        *([] if os.geteuid() == 0 else ["--map-root-user"]),
        "sh",
        "-ec",
        script,
        "sh",
    ]
    ended = subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, timeout=90, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.splitlines()


@needs_namespaces
async def test_on_a_full_disk_nothing_runs_and_nothing_recorded_is_lost(tmp_path: Path):
    said = in_a_namespace(IN_A_SMALL_DISK, tmp_path, sys.executable, "-c", FULL, tmp_path)
    lines = [line for line in said if not line.startswith(("opened", "closed"))]
    assert lines[0] == "leading"
    assert str(tmp_path) in lines[1]
    assert "Free_space" in lines[1]
    assert lines[2:] == ["refused", "verified"]
    assert len(said) > 20


READ_ONLY = """
mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"
"""

READ = f"""{SERVER}
from mcp_sandbox.audit.folder import Folder
from mcp_sandbox.audit.verify import verify
from mcp_sandbox.errors import AuditError

async def read(folder):
    store = AuditStore(Path(folder))
    try:
        await one(store, 1)
    except AuditError as error:
        say(error)
    say(*[run.status for run in await store.list()])
    say(verify(Folder(Path(folder))).ok)

anyio.run(read, sys.argv[1])
"""


@needs_namespaces
async def test_a_read_only_folder_records_nothing_and_can_still_be_read(folder: Path, run: Run):
    store = AuditStore(folder)
    await run(store)
    await store.aclose()
    said = in_a_namespace(READ_ONLY, folder, sys.executable, "-c", READ, folder)
    assert said[0].startswith(f"audit_unavailable: The run record in {folder} cannot be written: ")
    assert "name another one under [audit] path" in said[0]
    assert said[1:] == ["exited", "True"]


def a_link(path: Path) -> None:
    shutil.move(path, path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def a_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("")


def open_to_all(path: Path) -> None:
    path.chmod(0o777)


@pytest.mark.parametrize("part", [".", "blobs", "leases"])
@pytest.mark.parametrize("becomes", [a_link, a_file, open_to_all])
async def test_a_folder_that_others_could_steer_is_refused(
    folder: Path, opening: Opening, run: Run, part: str, becomes: Callable[[Path], None]
):
    store = AuditStore(folder)
    await run(store)
    await store.aclose()
    becomes(folder / part if part != "." else folder)
    store = AuditStore(folder)
    with pytest.raises(AuditError, match=str(folder)) as refusal:
        async with store.entry(opening):
            pytest.fail("ran unrecorded")
    assert "[audit] path" in refusal.value.next_step
    with pytest.raises(AuditError, match=str(folder)):
        await store.list()


@pytest.mark.skipif(
    os.geteuid() != 0, reason="giving a folder to another user takes root: `sudo ./scripts/test`"
)
async def test_a_folder_of_somebody_else_is_refused_even_by_root(folder: Path, run: Run):
    store = AuditStore(folder)
    await run(store)
    await store.aclose()
    os.chown(folder, 12345, 12345)
    with pytest.raises(AuditError, match="belongs to somebody else"):
        await run(AuditStore(folder))
    assert len(await AuditStore(folder).list()) == 1


@pytest.fixture
def database(folder: Path) -> Path:
    folder.mkdir(mode=0o700)
    return folder / "record.sqlite3"


async def test_a_database_that_is_a_link_is_refused(
    folder: Path, database: Path, opening: Opening, tmp_path: Path
):
    link(database, tmp_path / "elsewhere")
    store = AuditStore(folder)
    with pytest.raises(AuditError, match=str(folder)):
        async with store.entry(opening):
            pytest.fail("ran unrecorded")
    with pytest.raises(AuditError, match="symbolic link"):
        await store.list()
    assert list(files(tmp_path)) == []


async def test_all_that_is_made_is_for_its_owner_alone(folder: Path, run: Run):
    before = os.umask(0)
    try:
        store = AuditStore(folder)
        await run(store, stdout=b"x" * (INLINE_BYTES + 1))
        assert modes(folder) == {"drwx------", "-rw-------"}
        await store.aclose()
    finally:
        os.umask(before)


async def test_a_record_that_is_removed_under_a_server_stops_it_once(
    store: AuditStore, folder: Path, run: Run, verified: Verified
):
    await run(store)
    shutil.rmtree(folder)
    with pytest.raises(AuditError, match="removed or replaced"):
        await run(store)
    await run(store)
    await store.aclose()
    assert verified().ok
    assert verified().runs == 1


async def test_a_server_whose_lease_was_removed_finds_its_chain_ended_and_begins_another(
    store: AuditStore, folder: Path, run: Run, opening: Opening, verified: Verified
):
    other = AuditStore(folder)

    async def lose_the_lease() -> None:
        async with store.entry(opening):
            shutil.rmtree(folder / "leases")
            await other.open()

    with pytest.raises(AuditError, match="changed the chain"):
        await lose_the_lease()
    await run(store)
    await store.aclose()
    await other.aclose()
    verification = verified()
    assert verification.ok
    assert verification.incomplete == ()
    assert verification.chains == 3


async def test_a_record_kept_busy_by_another_is_an_error_in_bounded_time(
    folder: Path, opening: Opening, run: Run, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(store_module, "OPENING_SECONDS", 0.3)
    monkeypatch.setattr(store_module, "CLOSING_SECONDS", 0.3)
    store = AuditStore(folder)
    await run(store)
    other = sqlite3.connect(folder / "record.sqlite3", isolation_level=None)
    with anyio.fail_after(20):
        with pytest.raises(AuditError, match="locked"):
            async with store.entry(opening) as entry:
                other.execute("BEGIN IMMEDIATE")
        with pytest.raises(AuditError, match="locked"):
            async with store.entry(opening):
                pytest.fail("ran unrecorded")
    other.close()
    await store.aclose()
    assert (await statuses(store))[entry.run_id] == "lost"


async def test_a_cancelled_run_stays_cancelled_when_its_end_cannot_be_recorded(
    folder: Path, opening: Opening
):
    store = AuditStore(folder)
    with anyio.fail_after(20), anyio.CancelScope() as scope:
        async with store.entry(opening):
            other = sqlite3.connect(folder / "record.sqlite3", isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    other.close()
    await store.aclose()


async def test_a_disk_that_does_not_answer_is_an_error_in_bounded_time(
    folder: Path, opening: Opening, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(store_module, "OPENING_SECONDS", 0.2)
    answered = threading.Event()
    monkeypatch.setattr(Folder, "prepare", lambda self: answered.wait(30))
    store = AuditStore(folder)
    with anyio.fail_after(20), pytest.raises(AuditError, match="did not answer within"):
        async with store.entry(opening):
            pytest.fail("ran unrecorded")
    answered.set()


async def test_a_record_of_a_newer_version_is_refused(
    store: AuditStore, folder: Path, run: Run, tamper: Tamper
):
    await run(store)
    await store.aclose()
    tamper(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    with pytest.raises(AuditError, match="newer version"):
        await run(AuditStore(folder))
    with pytest.raises(AuditError, match="newer version"):
        await AuditStore(folder).list()


async def test_a_database_of_something_else_is_refused_and_untouched(folder: Path, database: Path, run: Run):
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE notes (text)")
    before = content(database)
    with pytest.raises(AuditError, match="something else"):
        await run(AuditStore(folder))
    assert content(database) == before


async def test_a_file_that_is_no_database_is_refused(folder: Path, database: Path, run: Run):
    leave(database, b"not a database" * 1000)
    with pytest.raises(AuditError, match="not a database"):
        await run(AuditStore(folder))


async def test_an_older_store_is_brought_forward_and_a_failing_step_leaves_it_as_it_was(
    store: AuditStore, folder: Path, run: Run
):
    name = await run(store)
    await store.aclose()
    connection = connect(folder / "record.sqlite3")
    steps = (*MIGRATIONS, "ALTER TABLE runs ADD COLUMN host TEXT NOT NULL DEFAULT '';")
    with pytest.raises(sqlite3.OperationalError):
        migrate(Folder(folder), connection, (*steps, "CREATE TABLE fine (a); CREATE TABLE runs (a);"))
    assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS) + 1,)
    assert connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'fine'").fetchone() == (0,)
    assert connection.execute("SELECT host FROM runs").fetchall() == [("",)]
    migrate(Folder(folder), connection, steps)
    connection.close()
    assert name


class FailingCommit:
    """A connection whose next commit reports a failure, before or after it is done."""

    def __init__(self, connection: sqlite3.Connection, *, done: bool) -> None:
        self._connection = connection
        self._done = done

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def execute(self, statement: str, *values: object) -> object:
        if statement == "COMMIT":
            if self._done:
                self._connection.execute(statement)
            raise sqlite3.OperationalError("disk I/O error")
        return self._connection.execute(statement, *values)


@pytest.mark.parametrize("done", [False, True])
async def test_after_a_commit_that_failed_or_only_seemed_to_the_chain_goes_on_whole(
    store: AuditStore, run: Run, verified: Verified, done: bool
):
    await run(store)
    journal = store._journal
    journal._connection = FailingCommit(journal._connection, done=done)
    with pytest.raises(AuditError, match="disk I/O error"):
        await run(store)
    await run(store)
    await store.aclose()
    assert list((await statuses(store)).values()).count("lost") == int(done)
    verification = verified()
    assert verification.ok
    assert verification.chains == 1
