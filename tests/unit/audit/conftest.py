"""A store with a few runs on it, and the hand of somebody who changes it afterwards."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from mcp_sandbox.audit.folder import Folder
from mcp_sandbox.audit.record import Opening
from mcp_sandbox.audit.store import AuditStore
from mcp_sandbox.audit.verify import verify
from mcp_sandbox.model import Client, ExecutionResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from mcp_sandbox.audit.findings import Verification


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
async def store(folder: Path):
    store = AuditStore(folder)
    yield store
    await store.aclose()


@pytest.fixture
def opening() -> Opening:
    return Opening(
        language="python",
        code="print(6 * 7)",
        timeout_seconds=5,
        client=Client(name="desk", version="1"),
        workspace="papers",
        policy={"network": "none"},
        environment=("LANG",),
    )


@pytest.fixture
def result() -> Callable[..., ExecutionResult]:
    def make(run_id: str, **changes: object) -> ExecutionResult:
        return ExecutionResult.model_validate(
            {
                "run_id": run_id,
                "status": "exited",
                "exit_code": 0,
                "stdout": "42\n",
                "stderr": "",
                "stdout_bytes": 3,
                "stderr_bytes": 0,
                "truncated": False,
                "duration_ms": 12,
                **changes,
            }
        )

    return make


@pytest.fixture
def run(opening: Opening, result: Callable[..., ExecutionResult]) -> Callable[..., Awaitable[str]]:
    """Record one finished run; `changes` are the opening's, `ended` the result's."""

    async def record(
        store: AuditStore,
        *,
        stdout: bytes = b"42\n",
        ended: dict[str, object] | None = None,
        **changes: object,
    ) -> str:
        async with store.entry(opening.model_copy(update=changes)) as entry:
            entry.finish(result(entry.run_id, **(ended or {})), stdout=stdout, stderr=b"")
        return entry.run_id

    return record


@pytest.fixture
def tamper(folder: Path) -> Callable[..., None]:
    """Change the database behind the store's back."""

    def change(*statements: str) -> None:
        connection = sqlite3.connect(folder / "record.sqlite3", isolation_level=None)
        for statement in statements:
            connection.execute(statement)
        connection.close()

    return change


@pytest.fixture
def verified(folder: Path) -> Callable[..., Verification]:
    def check(expect_head: str = "") -> Verification:
        return verify(Folder(folder), expect_head=expect_head)

    return check
