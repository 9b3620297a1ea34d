"""Engines that go wrong when told to."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mcp_sandbox.engines.docker.address import Address
from mcp_sandbox.engines.docker.connection import Connection
from tests.unit.engines.docker.http_engine import HttpEngine

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def http_engine() -> Iterator[HttpEngine]:
    with tempfile.TemporaryDirectory() as folder:  # a short path, as a socket's must be
        engine = HttpEngine(Path(folder, "engine.sock"))
        yield engine
        engine.stop()


@pytest.fixture
def connection(http_engine: HttpEngine) -> Iterator[Connection]:
    connection = Connection(lambda: Address(http_engine.url, "test"))
    yield connection
    connection.close()
