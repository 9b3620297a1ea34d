"""What no client should send and a hostile one does: a plain answer to each, and the server serves on."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from tests.clients.raw import ANSWER_SECONDS, RawClient, configuration_file, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import docker

pytestmark = pytest.mark.engine

REJECTED = "a-value-that-was-rejected"
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
MIB = 1 << 20


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def server(engine_host: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RawClient]:
    """One server for all of this: each test finds it as the one before has left it."""
    configuration = configuration_file(tmp_path_factory.mktemp("bad-input"), engine_host)
    async with serving(configuration) as client:
        yield client


def plain(text: str) -> str:
    """Return an error's text, which must hold nothing that only its programmer could use."""
    for telling in (
        "Traceback",
        "pydantic",
        "http://",
        "https://",
        "Error:",
        "input_value",
        'File "',
        REJECTED,
    ):
        assert telling not in text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", text)
    assert len(text) < 1000
    return text


async def refusal(server: RawClient, tool: str, arguments: str) -> str:
    """Call a tool with arguments as JSON text and return what it said; it must have refused."""
    call = f'"method": "tools/call", "params": {{"name": "{tool}", "arguments": {arguments}}}'
    result = (await answer(server, call))["result"]
    assert result["isError"] is True
    assert "structuredContent" not in result
    [content] = result["content"]
    text = plain(content["text"])
    code, _, rest = text.partition(": ")
    assert code == "refused"
    assert len(re.findall(r"[.!](?: |$)", rest)) >= 2, "what happened, and what to do next"
    return text


_ids = iter(range(1_000_000, 2_000_000))


async def answer(server: RawClient, rest: str) -> Any:
    """Send a request whose rest is this JSON text, and return the answer."""
    request_id = next(_ids)
    await server.send(f'{{"jsonrpc": "2.0", "id": {request_id}, {rest}}}\n'.encode())
    return await server.answer_to(request_id)


async def serves_on(server: RawClient) -> None:
    assert "tools" in (await server.request("tools/list"))["result"]


CALLS = {
    "no code": ("execute_python", "{}", "`code` is missing"),
    "empty code": ("execute_python", '{"code": ""}', "`code` is empty"),
    "blank code": ("execute_python", '{"code": " \\n\\t "}', "`code` is empty"),
    "empty command": ("execute_shell", '{"command": ""}', "`command` is empty"),
    "5 MiB of code": (
        "execute_python",
        json.dumps({"code": "#" * (5 * MIB)}),
        "5,242,880 bytes; at most 1,048,576",
    ),
    "5 MiB of command": (
        "execute_shell",
        json.dumps({"command": "#" * (5 * MIB)}),
        "5,242,880 bytes; at most 131,071",
    ),
    "NUL in a command": ("execute_shell", '{"command": "echo \\u0000"}', "`command` holds a NUL"),
    "code of another type": ("execute_python", f'{{"code": ["{REJECTED}"]}}', "`code` must be text"),
    "deep code": ("execute_python", '{"code": ' + "[" * 90 + "]" * 90 + "}", "`code` must be text"),
    "another tool's argument": (
        "execute_python",
        '{"code": "1", "command": "1"}',
        "`command` is not an argument",
    ),
    "an unknown argument": (
        "execute_python",
        f'{{"code": "1", "privileged": "{REJECTED}"}}',
        "`privileged` is not an argument",
    ),
    "variables of its own": (
        "execute_python",
        '{"code": "1", "env": {"LD_PRELOAD": "/tmp/x", "PATH": ".", "=x": "", "A": "\\u0000"}}',
        "`env` is not an argument",
    ),
    "a working folder of its own": (
        "execute_shell",
        '{"command": "true", "workdir": "/proc/self/fd/8"}',
        "`workdir` is not an argument",
    ),
    "an image of its own": (
        "execute_shell",
        '{"command": "true", "image": "--privileged"}',
        "`image` is not an argument",
    ),
    "an argument that acts on terminals": (
        "execute_python",
        '{"code": "1", "\\u001b[2J\\u0007\\u009b": 1}',
        "is not an argument",
    ),
    "a very long name": ("execute_python", json.dumps({"code": "1", "n" * 100_000: 1}), "is not an argument"),
    "a thousand arguments": (
        "execute_python",
        json.dumps({f"n{i}": i for i in range(1000)}),
        "is not an argument",
    ),
    "timeout 0": ("execute_python", '{"code": "1", "timeout_seconds": 0}', "from 0.1 to 300"),
    "timeout -1": ("execute_python", '{"code": "1", "timeout_seconds": -1}', "from 0.1 to 300"),
    "timeout -0.0": ("execute_python", '{"code": "1", "timeout_seconds": -0.0}', "from 0.1 to 300"),
    "timeout 1e300": ("execute_python", '{"code": "1", "timeout_seconds": 1e300}', "from 0.1 to 300"),
    "timeout 1e999": ("execute_python", '{"code": "1", "timeout_seconds": 1e999}', "from 0.1 to 300"),
    "timeout of 4000 digits": (
        "execute_python",
        f'{{"code": "1", "timeout_seconds": 1{"0" * 4000}}}',
        "`timeout_seconds` must be",
    ),
    "timeout NaN": ("execute_python", '{"code": "1", "timeout_seconds": NaN}', "from 0.1 to 300"),
    "timeout Infinity": ("execute_python", '{"code": "1", "timeout_seconds": Infinity}', "from 0.1 to 300"),
    "timeout -Infinity": ("execute_python", '{"code": "1", "timeout_seconds": -Infinity}', "from 0.1 to 300"),
    "timeout as text": (
        "execute_python",
        '{"code": "1", "timeout_seconds": "10"}',
        "`timeout_seconds` must be a number",
    ),
    "timeout null": (
        "execute_python",
        '{"code": "1", "timeout_seconds": null}',
        "`timeout_seconds` must be a number",
    ),
    "timeout true": (
        "execute_python",
        '{"code": "1", "timeout_seconds": true}',
        "`timeout_seconds` must be a number",
    ),
    "a tool that is not there": ("execute_\\u001b[31mruby", f'{{"code": "{REJECTED}"}}', "`execute_python`"),
}


@pytest.mark.parametrize("case", CALLS)
async def test_a_call_that_cannot_be_is_refused_in_words(case: str, server: RawClient) -> None:
    tool, arguments, said = CALLS[case]
    assert said in await refusal(server, tool, arguments)
    await serves_on(server)


WRONG = {
    "string": [5, None, True, [REJECTED], {REJECTED: REJECTED}],
    "number": [REJECTED, None, True, [1], {}],
    "integer": [REJECTED, None, True, 1.5, [1], {}],
    "array": [5, None, REJECTED, {REJECTED: 1}, [5], [None], [[REJECTED]]],
    "object": [5, None, REJECTED, [REJECTED], {"name": 5}, {"name": None}, {"name": [REJECTED]}],
}
NEEDED = {
    "execute_python": {"code": "1"},
    "execute_shell": {"command": "true"},
    "get_run": {"run_id": "1"},
    "cancel_run": {"run_id": "1"},
    "read_artifact": {"run_id": "1", "path": "stdout.txt"},
}


async def test_a_value_of_another_type_is_refused_by_its_name_for_every_argument_of_every_tool(
    server: RawClient,
) -> None:
    tools = (await server.request("tools/list"))["result"]["tools"]
    assert {tool["name"] for tool in tools} == NEEDED.keys()
    for tool in tools:
        for name, schema in tool["inputSchema"]["properties"].items():
            for value in WRONG[schema["type"]]:
                arguments = json.dumps({**NEEDED[tool["name"]], name: value})
                assert f"`{name}" in await refusal(server, tool["name"], arguments), arguments


FOR_A_SHELL = (
    "-v/:/host --privileged ../../x; touch {0} $(touch {0}) `touch {0}` && touch {0} | touch {0}\ntouch {0}\n"
    "' || touch {0} '\" || touch {0} \""
)
NAME = re.compile(r"mcp-sandbox-[0-9a-f]{16}")


async def test_what_a_shell_would_run_is_run_by_none_wherever_it_stands(
    server: RawClient, engine_client: docker.APIClient, tmp_path: Path
) -> None:
    canary = tmp_path / "ran"
    payload = FOR_A_SHELL.format(canary)
    values = {
        "string": payload,
        "array": [payload, f"1/{payload}"],
        "object": {payload: payload, "f": payload},
    }
    began = int(time.time())
    tools = (await server.request("tools/list"))["result"]["tools"]
    for tool in tools:
        for name, schema in tool["inputSchema"]["properties"].items():
            if schema["type"] in values:
                arguments = {**NEEDED[tool["name"]], name: values[schema["type"]]}
                assert await server.call(tool["name"], **arguments)
    assert (await server.python("print(open('f').read(), end='')", files={"f": payload}))["stdout"] == payload
    assert not canary.exists()
    events = list(engine_client.events(since=began, until=int(time.time()) + 1, decode=True))
    created = [event["Actor"]["Attributes"] for event in events if event["Action"] == "create"]
    assert created
    for attributes in created:
        assert NAME.fullmatch(attributes["name"])
        assert "touch" not in json.dumps(attributes)


async def test_two_calls_of_one_id_are_two_runs(server: RawClient) -> None:
    twice = next(_ids)
    for word in ("first", "second"):
        arguments = {"code": f"import time; time.sleep(0.5); print({word!r})"}
        call = {"name": "execute_python", "arguments": arguments}
        await server.send(
            json.dumps({"jsonrpc": "2.0", "id": twice, "method": "tools/call", "params": call}).encode()
            + b"\n"
        )
    with anyio.fail_after(ANSWER_SECONDS):
        while len(server.answers_to(twice)) < 2:
            await serves_on(server)
    results = [answer["result"]["structuredContent"] for answer in server.answers_to(twice)]
    assert sorted(result["stdout"] for result in results) == ["first\n", "second\n"]
    assert len({result["run_id"] for result in results}) == 2


async def test_a_call_that_was_answered_cannot_be_taken_back(server: RawClient) -> None:
    answered = await server.begin("execute_python", code="print('kept')")
    result = (await server.answer_to(answered))["result"]["structuredContent"]
    await server.cancel(answered)
    await serves_on(server)
    again = await server.call("get_run", run_id=result["run_id"])
    assert (again["structuredContent"]["status"], again["structuredContent"]["stdout"]) == (
        "exited",
        "kept\n",
    )
    assert len(server.answers_to(answered)) == 1


async def test_the_largest_program_there_may_be_runs(server: RawClient) -> None:
    code = "print(len('" + "A" * (MIB - 14) + "'))"
    assert len(code) == MIB
    assert (await server.python(code))["stdout"] == f"{MIB - 14}\n"


LINES = {
    "garbage": (b"hello", PARSE_ERROR, None),
    "HTTP": (b"GET / HTTP/1.1\r", PARSE_ERROR, None),
    "half a message": (b'{"jsonrpc": "2.0", "id": 900071, "method": "tools/list"', PARSE_ERROR, 900071),
    "invalid UTF-8": (b'{"jsonrpc": "2.0", "id": 900072, "method": "\xff\xfe"}', PARSE_ERROR, 900072),
    "invalid UTF-8 in a program": (
        b'{"jsonrpc": "2.0", "id": 900085, "method": "tools/call",'
        b' "params": {"name": "execute_python", "arguments": {"code": "print(1) # \xff\xfe"}}}',
        PARSE_ERROR,
        900085,
    ),
    "NUL bytes": (b"\x00\x00\x00", PARSE_ERROR, None),
    "a lone surrogate": (
        rb'{"jsonrpc": "2.0", "id": 900073, "method": "tools/call",'
        rb' "params": {"name": "execute_python", "arguments": {"code": "\ud800"}}}',
        PARSE_ERROR,
        900073,
    ),
    "deep nesting after the id": (b'{"id": "74", "params": ' + b"[" * 100_000, PARSE_ERROR, "74"),
    "deep nesting before the id": (
        b'{"method": "tools/list", "params": '
        + b'{"a":' * 50_000
        + b"1"
        + b"}" * 50_000
        + b', "jsonrpc": "2.0", "id": 900075}',
        PARSE_ERROR,
        900075,
    ),
    "an array": (b'[{"jsonrpc": "2.0", "id": 900076, "method": "tools/list"}]', INVALID_REQUEST, None),
    "an empty array": (b"[]", INVALID_REQUEST, None),
    "a number": (b"1", INVALID_REQUEST, None),
    "null": (b"null", INVALID_REQUEST, None),
    "an empty object": (b"{}", INVALID_REQUEST, None),
    "no version": (b'{"id": 900077, "method": "tools/list"}', INVALID_REQUEST, 900077),
    "another version": (b'{"jsonrpc": "1.0", "id": 900078, "method": "tools/list"}', INVALID_REQUEST, 900078),
    "no method": (b'{"jsonrpc": "2.0", "id": 900079}', INVALID_REQUEST, 900079),
    "a method that is no name": (b'{"jsonrpc": "2.0", "id": 900080, "method": 5}', INVALID_REQUEST, 900080),
    "params that are a list": (
        b'{"jsonrpc": "2.0", "id": 900081, "method": "tools/list", "params": [1]}',
        INVALID_REQUEST,
        900081,
    ),
    "id null": (b'{"jsonrpc": "2.0", "id": null, "method": "tools/list"}', INVALID_REQUEST, None),
    "id 1.5": (b'{"jsonrpc": "2.0", "id": 1.5, "method": "tools/list"}', INVALID_REQUEST, None),
    "id true": (b'{"jsonrpc": "2.0", "id": true, "method": "tools/list"}', INVALID_REQUEST, None),
    "id an object": (b'{"jsonrpc": "2.0", "id": {}, "method": "tools/list"}', INVALID_REQUEST, None),
    "an unknown method": (
        b'{"jsonrpc": "2.0", "id": 900082, "method": "tools/run"}',
        METHOD_NOT_FOUND,
        900082,
    ),
    "a call of nothing": (
        b'{"jsonrpc": "2.0", "id": 900083, "method": "tools/call"}',
        INVALID_PARAMS,
        900083,
    ),
    "arguments that are a list": (
        b'{"jsonrpc": "2.0", "id": 900084, "method": "tools/call",'
        b' "params": {"name": "execute_python", "arguments": [1]}}',
        INVALID_PARAMS,
        900084,
    ),
    "a line of 100 MB": (b"x" * 100_000_000, INVALID_REQUEST, None),
}


@pytest.mark.parametrize("case", LINES)
async def test_a_line_that_is_no_message_is_answered_with_the_id_that_it_had(
    case: str, server: RawClient
) -> None:
    line, code, request_id = LINES[case]
    before = len(server.messages)
    await server.send(line + b"\n")
    message = await server.heard(lambda _: True, after=before)
    assert message["error"]["code"] == code
    assert message["id"] == request_id
    plain(message["error"]["message"])
    await serves_on(server)


async def test_blank_lines_and_answers_to_nothing_are_passed_over(server: RawClient) -> None:
    before = len(server.messages)
    await server.send(b"\n  \n\r\n")
    await server.send(b'{"jsonrpc": "2.0", "id": 90, "result": {}}\n')
    await server.send(b'{"jsonrpc": "2.0", "id": null, "error": {"code": 1, "message": ""}}\n')
    await server.send(b'{"jsonrpc": "2.0", "method": "notifications/of-the-future", "params": {}}\n')
    await server.send(
        b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}}\n'
    )
    await serves_on(server)
    assert len(server.messages) == before + 1


async def test_a_message_may_come_in_pieces_and_many_at_once(server: RawClient) -> None:
    ids = [next(_ids) for _ in range(50)]
    requests = b"".join(
        b'{"jsonrpc": "2.0", "id": %d, "method": "tools/list"}\r\n' % number for number in ids
    )
    for start in range(0, len(requests), 1000):
        await server.send(requests[start : start + 1000])
    for number in ids:
        assert "tools" in (await server.answer_to(number))["result"]


async def test_a_nul_in_python_means_what_it_means_to_python(server: RawClient) -> None:
    result = await server.python("print(1)\0print(2)")
    plainly = await server.shell(r"printf 'print(1)\0print(2)' > main.py; exec python3 main.py")
    for same in (
        "status",
        "exit_code",
        "stdout",
    ):  # an error, or what stands before it: each Python's own way
        assert result[same] == plainly[same]


OUTPUT = {
    "a lone surrogate": "\ud800".encode("utf-8", "surrogatepass"),
    "broken UTF-8": b"\xff\xfe\xc3 \xe2\x82 \xf0\x9f\x98 \x80",
    "every byte": bytes(range(256)),
    "ANSI": b"\x1b[2J\x1b]0;title\x07\x1b[31mred\x1b[0m\x9b31m",
    "protocol": b'{"jsonrpc":"2.0","id":1,"result":{}}\n',
    "line separators": "a\u2028b\u2029c\x85d\ufeff".encode(),
    "carriage returns": b"10%\r20%\r\n\rdone",
}


@pytest.mark.parametrize("stream", [1, 2])
@pytest.mark.parametrize("case", OUTPUT)
async def test_whatever_a_program_writes_its_result_is_valid(
    case: str, stream: int, server: RawClient
) -> None:
    result = await server.call("execute_python", code=f"import os; os.write({stream}, {OUTPUT[case]!r})")
    structured = result["structuredContent"]
    assert structured["status"] == "exited"
    assert structured["exit_code"] == 0
    name = ("stdout", "stderr")[stream - 1]
    assert structured[f"{name}_bytes"] == len(OUTPUT[case])
    for text in (structured[name], result["content"][0]["text"]):
        assert text
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", text)
