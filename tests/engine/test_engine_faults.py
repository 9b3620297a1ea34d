"""An engine that fails: each call says what is wrong and what to do, and when the engine is well so is the next."""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import docker
import pytest

from mcp_sandbox.engines.docker.connection import LOOK_SECONDS
from tests.clients.raw import ANSWER_SECONDS, PATIENCE, RawClient, configuration_file, server_command, serving
from tests.engine.sandboxes import SECONDS, SLEEP, none_left, runs, sandboxes
from tests.engine_proxy import EngineProxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

pytestmark = pytest.mark.engine

REPOSITORY = Path(__file__).resolve().parent.parent.parent
CREATE = "POST .*/containers/create"


@pytest.fixture
async def proxy(engine_host: str, tmp_path: Path) -> AsyncIterator[EngineProxy]:
    async with EngineProxy(engine_host, tmp_path / "engine.sock").listening() as listening:
        yield listening


async def failure(server: RawClient, code: str) -> str:
    """Make a call that must fail with this code, and return its text."""
    result = await server.call("execute_python", code="print('must not run')", seconds=2 * ANSWER_SECONDS)
    assert result["isError"] is True
    assert "structuredContent" not in result
    [content] = result["content"]
    text: str = content["text"]
    assert text.startswith(f"{code}: ")
    for telling in (
        "Traceback",
        "http+docker",
        "requests.",
        "urllib3",
        "Error(",
        "object at 0x",
        "must not run",
    ):
        assert telling not in text
    assert len(re.findall(r"[.!](?: |$)", text)) >= 2, "what happened, and what to do next"
    return text


async def works(server: RawClient) -> None:
    result = await server.python("print(6 * 7)")
    if result["status"] == "running":
        result = await ended(server, result["run_id"])
    assert result["stdout"] == "42\n"


async def ended(server: RawClient, run_id: str) -> dict[str, Any]:
    """Wait for the result of a run that goes on."""
    with anyio.fail_after(ANSWER_SECONDS):
        while True:
            result = (await server.call("get_run", run_id=run_id, wait_seconds=40))["structuredContent"]
            if result["status"] != "running":
                return result


async def going(server: RawClient) -> str:
    """Begin a run, and return its name when its first output has come."""
    result = await server.shell(f"echo before; {SLEEP}; echo after")
    with anyio.fail_after(ANSWER_SECONDS):
        while not result["stdout"]:
            assert result["status"] == "running"
            result = (await server.call("get_run", run_id=result["run_id"]))["structuredContent"]
    run_id: str = result["run_id"]
    return run_id


async def lost(server: RawClient, run_id: str) -> None:
    """Wait for a run that the engine took with it: what it had written is not lost."""
    result = await ended(server, run_id)
    assert result["status"] == "lost"
    assert result["stdout"] == "before\n"
    assert result["exit_code"] is None
    assert result["hint"]


async def test_a_server_starts_without_an_engine_and_works_when_one_is_there(
    engine_host: str, tmp_path: Path
) -> None:
    proxy = EngineProxy(engine_host, tmp_path / "engine.sock")
    async with serving(configuration_file(tmp_path, proxy.host, ready=0)) as server:
        assert (await server.request("tools/list"))["result"]["tools"]
        text = await failure(server, "engine_unreachable")
        assert str(tmp_path / "engine.sock") in text
        assert "Start Docker" in text
        async with proxy.listening():
            await works(server)
    assert [run.error for run in await runs(tmp_path)] == ["", "engine_unreachable"]


async def test_a_socket_that_this_user_may_not_open_is_told_as_that(
    proxy: EngineProxy, tmp_path: Path
) -> None:
    socket = Path(proxy.host.removeprefix("unix://"))
    configuration = configuration_file(tmp_path, proxy.host)
    command = server_command(configuration)
    if os.geteuid() == 0:
        command = ["/usr/bin/setpriv", "--bounding-set=-all", "--inh-caps=-all", *command]
    socket.chmod(0)
    async with serving(configuration, command=command) as server:
        assert "usermod -aG docker" in await failure(server, "engine_denied")
        socket.chmod(0o600)
        await works(server)


async def test_an_engine_that_never_answers_is_given_up(proxy: EngineProxy, tmp_path: Path) -> None:
    configuration = configuration_file(tmp_path, proxy.host, ready=0)
    hasty = (
        "import sys, mcp_sandbox.cli, mcp_sandbox.engines.docker.connection as connection\n"
        f"connection.HTTP_SECONDS = {3 * PATIENCE}\n"  # as it is, only shorter
        f"sys.argv[1:] = ['serve', '--config', {str(configuration)!r}]\n"
        "mcp_sandbox.cli.main()"
    )
    proxy.silent = True
    async with serving(configuration, command=[sys.executable, "-c", hasty]) as server:
        assert "did not answer in time" in await failure(server, "engine_unreachable")
        proxy.forget()
        await works(server)


async def test_an_engine_that_goes_in_the_middle_of_a_run_costs_that_run_alone(
    proxy: EngineProxy, engine_client: docker.APIClient, tmp_path: Path
) -> None:
    configuration = configuration_file(tmp_path, proxy.host, server={"reply_within_seconds": 1})
    async with serving(configuration) as server:
        cut_off = await going(server)
        proxy.down = True
        proxy.cut()
        await lost(server, cut_off)
        await failure(server, "engine_unreachable")
        await none_left(engine_client, tmp_path)
        proxy.forget()
        await works(server)
    assert [run.status for run in await runs(tmp_path)] == ["exited", "error", "lost"]


@pytest.mark.parametrize("moment", ["GET .*/info", CREATE, "POST .*/attach", "POST .*/start"])
async def test_an_engine_that_goes_in_the_middle_of_a_launch_costs_that_call_alone(
    moment: str, proxy: EngineProxy, engine_client: docker.APIClient, tmp_path: Path
) -> None:
    async with serving(configuration_file(tmp_path, proxy.host, ready=0)) as server:
        hold = proxy.hold(moment, moment="answer")
        call = await server.begin("execute_python", code="print('must not run')")
        await hold.until_reached()
        proxy.down = True
        proxy.cut()
        result = (await server.answer_to(call))["result"]
        assert result["content"][0]["text"].startswith("engine_unreachable: ")
        proxy.forget()
        await works(server)
        await none_left(engine_client, tmp_path)


async def test_an_error_of_the_engines_own_is_passed_on_in_one_line(
    proxy: EngineProxy, tmp_path: Path
) -> None:
    async with serving(configuration_file(tmp_path, proxy.host, ready=0)) as server:
        proxy.answer(CREATE, 500, {"message": "no space left\n\x1b[31m on device" + "!" * 5000})
        text = await failure(server, "engine_failed")
        assert "no space left" in text
        assert "\x1b" not in text
        assert len(text) < 1000
        proxy.forget()
        await works(server)


async def test_a_missing_image_is_named_with_the_command_that_makes_it(
    engine_host: str, engine_client: docker.APIClient, tmp_path: Path
) -> None:
    image = f"mcp-sandbox/absent-{os.getpid()}"
    async with serving(configuration_file(tmp_path, engine_host, image=image)) as server:
        text = await failure(server, "image_missing")
        assert image in text
        assert "mcp-sandbox image build" in text
        engine_client.tag("mcp-sandbox/minimal", image)
        try:
            await works(server)
        finally:
            engine_client.remove_image(image)


@contextmanager
def an_image(client: docker.APIClient, files: dict[str, bytes]) -> Iterator[str]:
    """Make an image of these files alone."""
    name = f"mcp-sandbox-test-{os.getpid()}"
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
    client.import_image_from_data(archive.getvalue(), repository=name)
    try:
        yield name
    finally:
        client.remove_image(name, force=True)


async def test_an_image_without_python_is_told_as_that(
    runtime: str, engine_host: str, engine_client: docker.APIClient, tmp_path: Path
) -> None:
    with an_image(engine_client, {"etc/motd": b"nothing here"}) as image:
        async with serving(configuration_file(tmp_path, engine_host, image=image, runtime=runtime)) as server:
            assert "python3" in await failure(server, "image_unsuitable")
            await none_left(engine_client, tmp_path)


async def test_an_image_whose_python_is_none_runs_nothing(
    engine_host: str, engine_client: docker.APIClient, tmp_path: Path
) -> None:
    with an_image(engine_client, {"bin/python3": b"\x7fELF no program"}) as image:
        async with serving(configuration_file(tmp_path, engine_host, image=image)) as server:
            result = await server.call("execute_python", code="print('must not run')")
            text = result["content"][0]["text"]
            assert "must not run" not in text
            assert "exit code" not in text
            await none_left(engine_client, tmp_path)


async def test_a_missing_runtime_is_named_and_never_replaced(engine_host: str, tmp_path: Path) -> None:
    async with serving(configuration_file(tmp_path, engine_host, runtime="kata")) as server:
        text = await failure(server, "runtime_missing")
        assert "kata" in text
        assert "runc" in text


async def test_a_limit_that_the_engine_discards_ends_the_launch(
    proxy: EngineProxy, engine_client: docker.APIClient, tmp_path: Path
) -> None:
    warning = "Your kernel does not support memory limit capabilities. Limitation discarded."
    proxy.rewrite(CREATE, lambda created: {**created, "Warnings": [warning]})
    async with serving(configuration_file(tmp_path, proxy.host, ready=0)) as server:
        assert "Limitation discarded" in await failure(server, "engine_unsafe")
        await none_left(engine_client, tmp_path)
        proxy.forget()
        await works(server)


def unconfined(info: Any) -> Any:
    return {**info, "SecurityOptions": ["name=seccomp,profile=unconfined"]}


@pytest.mark.parametrize("change", [unconfined, lambda info: {**info, "SecurityOptions": []}])
async def test_an_engine_that_filters_no_system_calls_runs_nothing(
    change: Any, proxy: EngineProxy, tmp_path: Path
) -> None:
    proxy.rewrite("GET .*/info", change)
    async with serving(configuration_file(tmp_path, proxy.host, ready=0)) as server:
        assert "seccomp" in await failure(server, "engine_unsafe")
        proxy.forget()
        await works(server)
        # What was true of the engine may not be any more: it was started again, with other settings.
        proxy.rewrite("GET .*/info", change)
        with anyio.fail_after(LOOK_SECONDS + ANSWER_SECONDS):
            while not (await server.call("execute_shell", command="true")).get("isError"):
                pass


async def test_an_engine_killed_in_the_middle_of_a_run_is_found_again_when_it_is_back(
    engine_client: docker.APIClient, tmp_path: Path
) -> None:
    """The real thing: an engine of this test's own, with SIGKILL."""
    if os.geteuid() != 0:
        pytest.skip("starting, and killing, a Docker engine of its own takes root: `sudo ./scripts/test`")
    script = tmp_path / "scripts" / "engine"
    script.parent.mkdir()
    shutil.copy(REPOSITORY / "scripts" / "engine", script)

    async def engine(command: str) -> str:
        done = await anyio.run_process([script, command], stderr=subprocess.DEVNULL)
        return done.stdout.decode()

    await engine("up")
    try:
        host = (await engine("env")).partition("DOCKER_HOST=")[2].split()[0]
        own = docker.APIClient(host, timeout=60)
        await anyio.to_thread.run_sync(
            lambda: own.load_image(engine_client.get_image("mcp-sandbox/minimal"), quiet=True)
        )
        configuration = configuration_file(tmp_path, host, server={"reply_within_seconds": 1})
        async with serving(configuration) as server:
            cut_off = await going(server)
            os.kill(_listener(host), signal.SIGKILL)
            await lost(server, cut_off)
            await failure(server, "engine_unreachable")
            await engine("up")
            await works(server)
            server.close_stdin()
            await server.ended()
        # The engine may keep a corpse that it could not bury itself ("dead"): nothing runs, or will, in that.
        with anyio.fail_after(SECONDS):
            while {container["State"] for container in sandboxes(own, tmp_path)} - {"dead"}:  # noqa: ASYNC110
                await anyio.sleep(0.05)
    finally:
        await engine("down")


def _listener(host: str) -> int:
    """Return the process that listens on a Unix socket."""
    said = subprocess.run(
        ["ss", "--listening", "--unix", "--processes", "--no-header", "src", host.removeprefix("unix://")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = re.search(r"pid=(\d+)", said)
    assert found
    return int(found[1])
