"""Programs that take longer than a client waits: answered in time, waited for in parts, and complete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest
from mcp import Client, StdioServerParameters

from tests.clients.raw import PATIENCE, configuration_file, environment, server_command, serving
from tests.engine.sandboxes import SLEEP, none_left, runs, sleeping

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from docker import APIClient

    from tests.clients.raw import Message, RawClient

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

SOON = {"reply_within_seconds": 1}
LINES = 30
SLOW = f"import time\nfor i in range({LINES}):\n    print('line', i, 'é' * i)\n    time.sleep(0.2)\n"
WRITTEN = "".join(f"line {i} {'é' * i}\n" for i in range(LINES))


@pytest.fixture
async def server(engine_host: str, tmp_path: Path) -> AsyncIterator[RawClient]:
    """A server whose client gives up after a second."""
    async with serving(configuration_file(tmp_path, engine_host, server=SOON)) as client:
        yield client


async def at_its_end(server: RawClient, result: Message, **arguments: object) -> Message:
    """Wait for a run's end, in as many calls as it takes."""
    with anyio.fail_after(60 * PATIENCE):
        while result["status"] == "running":
            answer = await server.call("get_run", run_id=result["run_id"], wait_seconds=40, **arguments)
            result = answer["structuredContent"]
    return result


async def test_a_program_that_takes_longer_than_its_client_waits_is_complete_in_the_end(
    server: RawClient,
) -> None:
    first = await server.python(SLOW)
    assert first["status"] == "running"
    assert first["exit_code"] is None
    assert WRITTEN.startswith(first["stdout"])
    assert f'get_run(run_id="{first["run_id"]}"' in first["hint"]
    result = await at_its_end(server, first)
    assert (result["status"], result["exit_code"]) == ("exited", 0)
    assert result["stdout"] == WRITTEN
    assert result["run_id"] == first["run_id"]


async def test_a_client_that_gives_up_on_a_call_has_the_whole_of_a_program_that_takes_longer(
    engine_host: str, tmp_path: Path
) -> None:
    """Three minutes, 45 s and 60 s, on a smaller scale."""
    gives_up = 6.0 * PATIENCE
    code = (
        "import time\nfor tenth in range(10):\n    print('tenth', tenth)\n"
        f"    time.sleep({0.14 * gives_up})\nopen('made.txt', 'w').write('made')\n"
    )
    configuration = configuration_file(tmp_path, engine_host, server=SOON, max_timeout_seconds=3600)
    command, *arguments = server_command(configuration)
    server = StdioServerParameters(command=command, args=arguments, env=environment(tmp_path))
    output = ""
    with anyio.fail_after(120 * PATIENCE):
        async with Client(server, read_timeout_seconds=gives_up) as client:
            answer = await client.call_tool("execute_python", {"code": code, "timeout_seconds": 3600})
            while (result := answer.structured_content or {})["status"] == "running":
                output += result["stdout"]
                waiting = {
                    "run_id": result["run_id"],
                    "stdout_from": result["stdout_bytes"],
                    "wait_seconds": 40,
                }
                answer = await client.call_tool("get_run", waiting)
    assert output + result["stdout"] == "".join(f"tenth {tenth}\n" for tenth in range(10))
    assert result["duration_ms"] > gives_up * 1000
    assert (result["exit_code"], [file["path"] for file in result["artifacts"]]) == (0, ["made.txt"])


async def test_what_is_new_since_an_offset_is_all_of_it_and_nothing_twice(server: RawClient) -> None:
    result = await server.python(SLOW)
    pieces, answers = [result["stdout"]], 1
    with anyio.fail_after(60 * PATIENCE):
        while result["status"] == "running":
            answer = await server.call(
                "get_run", run_id=result["run_id"], wait_seconds=1, stdout_from=result["stdout_bytes"]
            )
            result = answer["structuredContent"]
            pieces.append(result["stdout"])
            answers += 1
    assert answers > 2
    assert "".join(pieces) == WRITTEN
    assert result["stdout_bytes"] == len(WRITTEN.encode())


@pytest.mark.parametrize("offset", [0, 1, 7, 100, len(WRITTEN.encode()), 10**9])
async def test_an_offset_is_a_number_of_bytes(server: RawClient, offset: int) -> None:
    result = await at_its_end(server, await server.python(f"import sys; sys.stdout.write({WRITTEN!r})"))
    answer = await server.call("get_run", run_id=result["run_id"], stdout_from=offset)
    rest = WRITTEN.encode()[offset:].decode("utf-8", "replace")
    assert answer["structuredContent"]["stdout"] == rest
    assert answer["structuredContent"]["stdout_bytes"] == len(WRITTEN.encode())


async def test_files_that_a_long_program_made_come_with_its_end(server: RawClient) -> None:
    first = await server.python("import time; time.sleep(3); open('made.txt', 'w').write('made')")
    assert first["artifacts"] == []
    result = await at_its_end(server, first)
    assert [artifact["path"] for artifact in result["artifacts"]] == ["made.txt"]


async def test_a_run_that_was_cancelled_keeps_what_it_wrote_and_made(
    engine_host: str, engine_client: APIClient, tmp_path: Path
) -> None:
    async with serving(configuration_file(tmp_path, engine_host, server=SOON, ready=0)) as server:
        first = await server.shell(f"echo begun; echo made > made.txt; {SLEEP}")
        await sleeping(engine_client, tmp_path)
        answer = await server.call("cancel_run", run_id=first["run_id"])
        result = answer["structuredContent"]
        assert (result["status"], result["stdout"]) == ("cancelled", "begun\n")
        assert [artifact["path"] for artifact in result["artifacts"]] == ["made.txt"]
        await none_left(engine_client, tmp_path)
        again = await server.call("cancel_run", run_id=first["run_id"])
        assert again["structuredContent"] == result
        assert (await server.call("get_run", run_id=first["run_id"]))["structuredContent"] == result
    assert [run.status for run in await runs(tmp_path)] == ["cancelled"]


async def test_a_client_that_takes_back_its_wait_does_not_end_the_run(server: RawClient) -> None:
    first = await server.python(SLOW)
    waiting = await server.begin("get_run", run_id=first["run_id"], wait_seconds=40)
    await server.cancel(waiting)
    result = await at_its_end(server, first)
    assert result["stdout"] == WRITTEN


async def test_a_long_program_is_stopped_at_its_own_limit_all_the_same(server: RawClient) -> None:
    first = await server.shell(f"echo begun; {SLEEP}", timeout_seconds=4)
    result = await at_its_end(server, first)
    assert (result["status"], result["stdout"]) == ("timed_out", "begun\n")


async def test_a_long_run_ends_with_its_server_and_is_on_the_record(
    engine_host: str, engine_client: APIClient, tmp_path: Path
) -> None:
    async with serving(configuration_file(tmp_path, engine_host, server=SOON)) as server:
        first = await server.shell(f"echo begun; {SLEEP}")
        assert first["status"] == "running"
    await none_left(engine_client, tmp_path)
    (run,) = await runs(tmp_path)
    assert run.status == "cancelled"


async def test_the_result_of_an_earlier_server_s_run_is_still_to_be_had(
    engine_host: str, tmp_path: Path
) -> None:
    configuration = configuration_file(tmp_path, engine_host)
    async with serving(configuration) as server:
        before = await server.shell("echo kept; echo made > made.txt; exit 3")
    async with serving(configuration) as server:
        answer = await server.call("get_run", run_id=before["run_id"])
        assert answer["structuredContent"] == before
        refused = await server.call("cancel_run", run_id=before["run_id"])
        assert refused["isError"]
        nothing = await server.call("get_run", run_id="0000000000000")
        assert nothing["isError"]


async def test_who_waits_is_told_how_far_it_is(engine_host: str, tmp_path: Path) -> None:
    async with serving(
        configuration_file(tmp_path, engine_host, server={"reply_within_seconds": 12})
    ) as server:
        code = "import time\nprint('step 1 of 2')\nopen('x', 'w')\ntime.sleep(60)"
        params = {
            "name": "execute_python",
            "arguments": {"code": code, "timeout_seconds": 20},
            "_meta": {"progressToken": "here"},
        }
        call = await server.post("tools/call", params)
        told = await server.heard(
            lambda message: (
                message.get("method") == "notifications/progress"
                and "step 1 of 2" in message["params"]["message"]
            )
        )
        assert told["params"]["progressToken"] == "here"
        assert 20 <= told["params"]["total"] < 30  # the wait for its sandbox is in it
        assert 0 < told["params"]["progress"] < told["params"]["total"]
        assert told["params"]["message"].startswith("running for ")
        await server.cancel(call)


async def test_many_long_runs_are_waited_for_side_by_side(server: RawClient) -> None:
    calls = [await server.begin("execute_shell", command=f"sleep 2; echo {n}") for n in range(4)]
    firsts = [(await server.answer_to(call))["result"]["structuredContent"] for call in calls]
    ends = [await at_its_end(server, first) for first in firsts]
    assert [end["stdout"] for end in ends] == [f"{n}\n" for n in range(4)]
    assert len({end["run_id"] for end in ends}) == 4
