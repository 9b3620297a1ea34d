"""A launch that goes wrong at every step: told as what it is, and nothing left on the engine."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
import pytest

from mcp_sandbox.engines.docker.connection import EngineFacts
from mcp_sandbox.engines.docker.engine import _STARTS_AT_ONCE, DockerEngine, refuse_unsafe
from mcp_sandbox.errors import EngineError, EngineUnreachable, EngineUnsafe, ImageMissing, RuntimeMissing
from tests.specs import SPEC

if TYPE_CHECKING:
    from mcp_sandbox.engines.docker.connection import Connection
    from tests.unit.engines.docker.http_engine import HttpEngine

pytestmark = pytest.mark.anyio

LABELS = {"server": "s", "host": "h"}
IMAGE = f"GET /images/{SPEC.image}/json"
CREATE, ATTACH, START = "POST /containers/create", "POST /containers/attach", "POST /containers/start"
WAIT, REMOVE = "POST /containers/wait", "DELETE /containers"
FACTS = EngineFacts(
    version="27.0.1",
    api_version="1.44",
    runtimes=frozenset({"runc", "runsc"}),
    default_runtime="runc",
    security_options=("name=seccomp,profile=builtin",),
    cpus=1,
    memory_bytes=1,
    cgroup_version="2",
    storage_driver="overlay2",
    operating_system="Linux",
    warnings=(),
)


class TestUnsafeEngines:
    @pytest.mark.parametrize("runtime", ["", "runc", "runsc"])
    def test_a_runtime_that_is_there_is_used(self, runtime: str) -> None:
        refuse_unsafe(SPEC.model_copy(update={"runtime": runtime}), FACTS)

    @pytest.mark.parametrize(("runtime", "advice"), [("runsc", "gVisor"), ("kata", "Register it")])
    def test_a_runtime_that_is_not_is_refused_with_what_to_do(self, runtime: str, advice: str) -> None:
        facts = replace(FACTS, runtimes=frozenset({"runc"}))
        with pytest.raises(RuntimeMissing, match="it has runc") as caught:
            refuse_unsafe(SPEC.model_copy(update={"runtime": runtime}), facts)
        assert advice in caught.value.next_step

    @pytest.mark.parametrize("options", [(), ("name=seccomp,profile=unconfined",), ("name=apparmor",)])
    def test_an_engine_that_filters_no_system_calls_is_refused_unless_that_was_allowed(
        self, options: tuple[str, ...]
    ) -> None:
        facts = replace(FACTS, security_options=options)
        with pytest.raises(EngineUnsafe, match="seccomp"):
            refuse_unsafe(SPEC, facts)
        refuse_unsafe(SPEC.model_copy(update={"unsafe_allow_unconfined_seccomp": True}), facts)


async def launch(engine: DockerEngine) -> None:
    async with engine.launch(SPEC):
        pass


async def until(engine: HttpEngine, request: str, times: int = 1) -> None:
    await anyio.to_thread.run_sync(engine.until, request, times)


async def test_what_goes_by_itself_costs_no_kill(http_engine: HttpEngine, connection: Connection) -> None:
    http_engine.auto_remove = True
    with anyio.fail_after(20):
        async with DockerEngine(connection, LABELS) as engine:
            await launch(engine)
    assert http_engine.asked[-2:] == [START, WAIT]
    assert not http_engine.containers


async def test_a_run_asks_an_engine_for_these_things_alone(
    http_engine: HttpEngine, connection: Connection
) -> None:
    """No file goes by the archive API, nothing is executed in a container, no log is read, no image fetched."""
    http_engine.auto_remove = True
    with anyio.fail_after(20):
        async with DockerEngine(connection, LABELS) as engine:
            await launch(engine)
    assert http_engine.asked == ["GET /version", "GET /info", IMAGE, CREATE, ATTACH, START, WAIT]


async def test_a_missing_image_is_not_fetched(http_engine: HttpEngine, connection: Connection) -> None:
    http_engine.answers[IMAGE] = (404, f"No such image: {SPEC.image}")
    with anyio.fail_after(20):
        async with DockerEngine(connection, LABELS) as engine:
            with pytest.raises(ImageMissing, match=SPEC.image):
                await launch(engine)
    assert http_engine.asked == ["GET /version", "GET /info", IMAGE]


@pytest.mark.parametrize(
    "answer",
    [
        (404, "No such container: x"),
        (409, "removal of container x is already in progress"),
    ],
)
async def test_a_container_that_goes_as_it_is_removed_is_gone(
    http_engine: HttpEngine, connection: Connection, answer: tuple[int, str], caplog: pytest.LogCaptureFixture
) -> None:
    http_engine.answers[REMOVE] = answer
    with anyio.fail_after(20):
        async with DockerEngine(connection, LABELS) as engine:
            await launch(engine)
            await until(http_engine, REMOVE)
            await launch(engine)
            await until(http_engine, REMOVE, 2)
    assert http_engine.asked.count(REMOVE) == 2
    assert caplog.text == ""


@pytest.mark.parametrize("hangs", [False, True])
async def test_what_does_not_go_by_itself_is_killed_and_removed(
    http_engine: HttpEngine, connection: Connection, hangs: bool
) -> None:
    if hangs:
        http_engine.hold[WAIT] = threading.Event()
    with anyio.fail_after(20):
        async with DockerEngine(connection, LABELS) as engine:
            await launch(engine)
            await until(http_engine, REMOVE)
    assert not http_engine.containers


@pytest.mark.parametrize(
    "warning",
    [
        "Your kernel does not support swap limit capabilities or the cgroup is not mounted.",
        "Your kernel does not support pids limit capabilities. PIDs limit discarded.",
        "Your kernel does not support memory limit capabilities. Limitation discarded.",
    ],
)
async def test_a_limit_that_would_not_be_enforced_stops_the_launch(
    http_engine: HttpEngine, connection: Connection, warning: str
) -> None:
    http_engine.warnings = [warning]
    with anyio.fail_after(20):
        async with DockerEngine(connection, LABELS) as engine:
            with pytest.raises(EngineUnsafe) as caught:
                await launch(engine)
    assert warning.rstrip(".") in caught.value.message
    assert START not in http_engine.asked
    assert not http_engine.containers


async def test_an_image_for_another_architecture_is_slow_and_no_danger(
    http_engine: HttpEngine, connection: Connection
) -> None:
    http_engine.warnings = [
        "The requested image's platform (linux/arm64) does not match the detected host platform"
    ]
    with anyio.fail_after(20):
        async with DockerEngine(connection, LABELS) as engine:
            await launch(engine)
    assert START in http_engine.asked


@pytest.mark.parametrize("request_", ["GET /info", CREATE, ATTACH, START])
async def test_an_engine_that_hangs_is_given_up_and_what_it_made_after_all_is_removed(
    http_engine: HttpEngine, connection: Connection, monkeypatch: pytest.MonkeyPatch, request_: str
) -> None:
    monkeypatch.setattr("mcp_sandbox.engines.docker.engine.LAUNCH_SECONDS", 0.2)
    go_on = http_engine.hold[request_] = threading.Event()
    with anyio.fail_after(20):
        async with DockerEngine(connection, LABELS) as engine:
            with pytest.raises(EngineUnreachable, match="did not start"):
                await launch(engine)
            # Where the creation was still under way, the removal had nothing to remove, and comes again. What
            # nobody waits for any more is not even created.
            removals = 0 if request_ == "GET /info" else 2
            await until(http_engine, REMOVE, removals // 2)
            go_on.set()
            await until(http_engine, REMOVE, removals)
    assert not http_engine.containers


@pytest.mark.parametrize("request_", [CREATE, ATTACH, START])
async def test_a_caller_that_left_while_it_started_leaves_nothing(
    http_engine: HttpEngine, connection: Connection, request_: str
) -> None:
    go_on = http_engine.hold[request_] = threading.Event()
    with anyio.fail_after(20):
        async with DockerEngine(connection, LABELS) as engine:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(launch, engine)
                await until(http_engine, request_)
                tasks.cancel_scope.cancel()
            await until(http_engine, REMOVE)
            go_on.set()
            await until(http_engine, REMOVE, 2)
    assert not http_engine.containers


async def test_starts_that_hang_do_not_keep_others_from_being_removed(
    http_engine: HttpEngine, connection: Connection
) -> None:
    with anyio.fail_after(20):
        async with DockerEngine(connection, LABELS) as engine:
            async with anyio.create_task_group() as tasks:
                async with engine.launch(SPEC):
                    http_engine.hold[START] = threading.Event()
                    for _ in range(50):
                        tasks.start_soon(launch, engine)
                    await until(http_engine, START, 1 + _STARTS_AT_ONCE)
                await until(http_engine, REMOVE)
                tasks.cancel_scope.cancel()
            http_engine.hold[START].set()
            # Once for each that was cancelled, and once more when its start is over.
            await until(http_engine, REMOVE, 1 + 2 * _STARTS_AT_ONCE)
    assert not http_engine.containers


async def test_an_engine_that_hangs_does_not_keep_a_server_from_ending(
    http_engine: HttpEngine, connection: Connection
) -> None:
    http_engine.hold[REMOVE] = threading.Event()
    with anyio.fail_after(20):
        async with DockerEngine(connection, LABELS) as engine:
            await launch(engine)
            await until(http_engine, REMOVE)
    assert http_engine.containers


async def test_a_removal_that_fails_harms_nobody(
    http_engine: HttpEngine, connection: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    with anyio.fail_after(20):
        async with DockerEngine(connection, LABELS) as engine:
            async with engine.launch(SPEC) as sandbox:
                http_engine.failing.add(REMOVE)
            await until(http_engine, REMOVE)
            http_engine.failing.clear()
            await launch(engine)
    assert sandbox.name in caplog.text


async def test_an_engine_that_fails_is_told(http_engine: HttpEngine, connection: Connection) -> None:
    http_engine.failing.add(CREATE)
    with anyio.fail_after(20):
        async with DockerEngine(connection, LABELS) as engine:
            with pytest.raises(EngineError, match="driver failed"):
                await launch(engine)
