"""Every kind of result, as a client is given it: it fits the schema that was listed, in both of its forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from tests.clients.raw import RawClient, configuration_file, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.engine

REPLY = 20 << 10


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def server(engine_host: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RawClient]:
    small = {"memory": "128MiB", "scratch_size": "16MiB", "tmp_size": "16MiB", "shm_size": "16MiB"}
    configuration = configuration_file(
        tmp_path_factory.mktemp("results"), engine_host, server={"reply_within_seconds": 6}, **small
    )
    async with serving(configuration) as client:
        yield client


async def valid(server: RawClient, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool and return its structured result, which must be as listed and told in the text as well."""
    tools = {tool["name"]: tool for tool in (await server.request("tools/list"))["result"]["tools"]}
    jsonschema.validate(arguments, tools[tool]["inputSchema"])
    result = await server.call(tool, **arguments)
    assert not result.get("isError"), result
    structured = result["structuredContent"]
    jsonschema.validate(structured, tools[tool]["outputSchema"])
    [text, *_] = [content["text"] for content in result["content"] if content["type"] == "text"]
    for stream in ("stdout", "stderr"):
        assert structured.get(stream, "").rstrip() in text
    assert structured.get("hint", "") in text
    assert structured["run_id"] in text or "text" in structured
    assert len(text.encode()) < 2 * REPLY
    return structured


ENDS = {
    "exited": ("execute_python", {"code": "print(1)"}, {"status": "exited", "exit_code": 0, "signal": None}),
    "failed": ("execute_python", {"code": "1/0"}, {"status": "exited", "exit_code": 1}),
    "no output": ("execute_shell", {"command": "true"}, {"stdout": "", "stderr": "", "stdout_bytes": 0}),
    "a signal": (
        "execute_shell",
        {"command": "kill -SEGV $$"},
        {"status": "exited", "exit_code": None, "signal": "SIGSEGV"},
    ),
    "a real-time signal": (
        "execute_shell",
        {"command": "kill -40 $$"},
        {"status": "exited", "exit_code": None},
    ),
    "the deadline": (
        "execute_python",
        {"code": "print('before', flush=True)\nwhile True: pass", "timeout_seconds": 1},
        {"status": "timed_out", "exit_code": None, "stdout": "before\n"},
    ),
    "memory": (
        "execute_python",
        {"code": "print('before', flush=True)\nx = [bytearray(1 << 20) for _ in range(4096)]"},
        {"status": "out_of_memory", "exit_code": None, "stdout": "before\n"},
    ),
    "much output": (
        "execute_python",
        {"code": "print('x' * 1_000_000)"},
        {"truncated": True, "stdout_bytes": 1_000_001},
    ),
}


@pytest.mark.parametrize("end", ENDS)
async def test_a_result_is_as_listed_however_the_program_ended(end: str, server: RawClient) -> None:
    tool, arguments, wanted = ENDS[end]
    assert (await valid(server, tool, **arguments)).items() >= wanted.items()


async def test_files_that_come_out_are_as_listed_and_can_be_read(server: RawClient) -> None:
    result = await valid(
        server,
        "execute_python",
        code="open('naïve data ☃.csv', 'w').write('a,b\\n' * 10)\nopen('noise', 'wb').write(bytes(range(256)))",
        stdin="typed",
        files={"given.txt": "given"},
    )
    assert [file["path"] for file in result["artifacts"]] == ["naïve data ☃.csv", "noise"]
    text = await valid(server, "read_artifact", run_id=result["run_id"], path="naïve data ☃.csv", limit=6)
    assert (text["text"], text["next_offset"]) == ("a,b\na,", 6)
    noise = await valid(server, "read_artifact", run_id=result["run_id"], path="noise")
    assert (noise["text"], noise["next_offset"]) == ("", None)


async def test_a_run_that_goes_on_is_as_listed_until_it_is_stopped(server: RawClient) -> None:
    going = await valid(server, "execute_shell", command="echo first; sleep 25; echo last")
    assert going["status"] == "running"
    assert going["stdout"] == "first\n"
    assert f'get_run(run_id="{going["run_id"]}"' in going["hint"]
    more = await valid(server, "get_run", run_id=going["run_id"], stdout_from=6)
    assert (more["status"], more["stdout"]) == ("running", "")
    stopped = await valid(server, "cancel_run", run_id=going["run_id"])
    assert (stopped["status"], stopped["stdout"], stopped["exit_code"]) == ("cancelled", "first\n", None)
    again = await valid(server, "get_run", run_id=going["run_id"])
    assert again["status"] == "cancelled"
