"""What is kept of an engine, and until when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import docker.errors
import pytest

from mcp_sandbox.engines.docker.address import Address
from mcp_sandbox.engines.docker.connection import LOOK_SECONDS, Connection, EngineFacts
from mcp_sandbox.errors import EngineError, EngineUnreachable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.engines.docker.http_engine import HttpEngine


def facts(connection: Connection) -> EngineFacts:
    with connection.client() as client:
        return connection.facts(client)


def test_an_engine_that_was_started_anew_is_seen_within_seconds(http_engine: HttpEngine) -> None:
    now = 100.0
    connection = Connection(lambda: Address(http_engine.url, "test"), lambda: now)
    assert facts(connection).runtimes == {"runc", "runsc"}
    http_engine.info["Runtimes"] = {"runc": {}}  # started anew, with other settings
    assert facts(connection).runtimes == {"runc", "runsc"}
    now += LOOK_SECONDS + 0.1
    assert facts(connection).runtimes == {"runc"}
    assert http_engine.asked == ["GET /version", "GET /info", "GET /info"]


def test_clients_are_used_again_and_never_by_two_at_once(connection: Connection) -> None:
    with connection.client() as first, connection.client() as second:
        assert first is not second
    with connection.client() as third:
        assert third in (first, second)


def test_a_client_that_met_a_failure_is_not_used_again(connection: Connection) -> None:
    with pytest.raises(EngineError, match="driver failed"), connection.client() as failing:
        failing.df()
    with connection.client() as client:
        assert client is not failing


def test_an_engine_that_comes_back_is_asked_anew(http_engine: HttpEngine, connection: Connection) -> None:
    assert facts(connection).version == "27.0.1"
    with pytest.raises(EngineUnreachable), connection.client():
        raise docker.errors.DockerException("it is gone")
    http_engine.info["ServerVersion"] = "28.0.0"
    assert facts(connection).version == "28.0.0"


def test_an_engine_that_was_found_is_not_exchanged_for_another(http_engine: HttpEngine) -> None:
    found: list[Address] = []

    def find() -> Address:
        found.append(Address(http_engine.url, f"search {len(found) + 1}"))
        return found[-1]

    connection = Connection(find)
    facts(connection)
    with pytest.raises(EngineUnreachable), connection.client():
        raise docker.errors.DockerException("it is gone")
    facts(connection)
    connection.close()
    assert connection.address.source == "search 1"
    assert len(found) == 1


def test_an_engine_that_was_not_found_is_looked_for_again(http_engine: HttpEngine) -> None:
    searches: Iterator[Address | EngineError] = iter(
        [EngineUnreachable("nobody listens."), Address(http_engine.url, "the second search")]
    )

    def find() -> Address:
        found = next(searches)
        if isinstance(found, Exception):
            raise found
        return found

    connection = Connection(find)
    with pytest.raises(EngineUnreachable):
        facts(connection)
    assert facts(connection).version == "27.0.1"
    connection.close()


@pytest.mark.parametrize(
    ("options", "filters"),
    [
        (["name=seccomp,profile=default"], True),
        (["name=apparmor", "name=seccomp,profile=builtin"], True),
        (["name=seccomp,profile=/etc/docker/seccomp.json"], True),
        (["name=seccomp,profile=unconfined"], False),
        (["name=apparmor"], False),
        (None, False),
    ],
)
def test_only_a_seccomp_profile_filters_system_calls(
    http_engine: HttpEngine, connection: Connection, options: list[str] | None, filters: bool
) -> None:
    http_engine.info["SecurityOptions"] = options
    assert facts(connection).filters_system_calls is filters
