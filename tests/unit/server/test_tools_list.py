"""What a model is told of the tools: always the same, short enough, and true of the policy in force."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

if TYPE_CHECKING:
    from mcp.client import Mode

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
LONG_HOSTS = [f"{'a' * 60}.{'b' * 60}.{number}.example.com" for number in range(1000)]
POLICIES: dict[str, dict[str, object]] = {
    "the default": {},
    "small": {
        "memory": 128 * MIB,
        "scratch_size": 16 * MIB,
        "tmp_size": 8 * MIB,
        "shm_size": 8 * MIB,
        "timeout_seconds": 2.5,
        "max_timeout_seconds": 7.0,
        "cpus": 0.25,
        "pids_limit": 33,
        "reply_limit": 3 * KIB,
    },
    "everything": {
        "image": "registry.example/" + "i" * 200,
        "path": "/home/person/data",
        "mounts": [{"source": "/home/person", "target": f"/{'m' * 150}{number}"} for number in range(20)],
        "egress": {"allow": LONG_HOSTS},
        "unsafe_allow_unconfined_seccomp": True,
        "unsafe_unmask": ["x" * 100],
    },
}


@pytest.fixture(params=POLICIES)
def policy(request: pytest.FixtureRequest) -> dict[str, object]:
    return POLICIES[request.param]


async def tools_of(connected: Any, mode: Mode = "2026-07-28", **policy: object) -> dict[str, Any]:
    async with connected(mode, **policy) as client:
        listed = await client.list_tools()
        return {
            tool.name: tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed.tools
        }


async def test_the_list_is_the_same_every_time_in_every_server_and_both_eras(
    connected: Any, policy: dict[str, object]
) -> None:
    texts: dict[Mode, set[str]] = {"2026-07-28": set(), "legacy": set()}
    for mode, seen in (*texts.items(), *texts.items()):
        async with connected(mode, **policy) as client:
            for _ in range(2):
                seen.add((await client.list_tools()).model_dump_json(include={"tools"}))
    [modern], [legacy] = texts.values()
    assert json.loads(modern) == json.loads(legacy)


async def test_what_is_said_fits_into_what_clients_show(connected: Any, policy: dict[str, object]) -> None:
    async with connected("legacy", **policy) as client:
        assert 0 < len(client.instructions.encode()) <= 2000
    for tool in (await tools_of(connected, **policy)).values():
        assert 0 < len(tool["description"].encode()) <= 2000


async def test_every_limit_that_is_said_is_the_one_in_force(connected: Any) -> None:
    tools = await tools_of(connected, **POLICIES["small"])
    for name in ("execute_python", "execute_shell"):
        said = tools[name]["description"]
        for limit in (
            "2.5 s",
            "7 s",
            "128MiB memory",
            "0.25 CPU",
            "33 processes",
            "16MiB in /scratch",
            "3KiB of output",
        ):
            assert limit in said
        timeout = tools[name]["inputSchema"]["properties"]["timeout_seconds"]
        assert (timeout["minimum"], timeout["maximum"], timeout["default"]) == (0.1, 7.0, 2.5)


async def test_files_network_and_weaknesses_are_told_as_they_are(connected: Any) -> None:
    plain = (await tools_of(connected))["execute_python"]["description"]
    assert "There is no network." in plain
    assert "none of the person's files are visible" in plain
    assert "Weakened" not in plain

    everything = (await tools_of(connected, **POLICIES["everything"]))["execute_python"]["description"]
    assert "There is no network." not in everything
    assert LONG_HOSTS[0] in everything
    assert re.search(r"and 99\d more", everything)
    assert "files appear in it, read-only" in everything
    assert "/mmm" in everything
    assert "s unless you ask for" in everything
    assert "Weakened by configuration: unsafe_unmask, unsafe_allow_unconfined_seccomp." in everything

    mounted = (await tools_of(connected, mounts=[{"source": "/srv", "target": "/data"}]))["execute_shell"]
    assert "the person's files are in /data." in mounted["description"]
    assert "none of the person's files" not in mounted["description"]


async def test_a_call_can_decline_the_network_where_there_is_one(connected: Any) -> None:
    for tool in list((await tools_of(connected)).values()):
        assert "network" not in tool["inputSchema"]["properties"]
    tools = await tools_of(connected, egress={"allow": ["api.example.com"]})
    for name in ("execute_python", "execute_shell"):
        network = tools[name]["inputSchema"]["properties"]["network"]
        assert (network["enum"], network["default"]) == (["none", "allowlist"], "allowlist")
    async with connected(egress={"allow": ["api.example.com"]}) as client:
        answer = await client.call_tool("execute_python", {"code": "1", "network": "all"})
        assert '`network` must be "none" or "allowlist"' in answer.content[0].text
    async with connected() as client:
        answer = await client.call_tool("execute_shell", {"command": "true", "network": "allowlist"})
        assert "this workspace allows no host" in answer.content[0].text
        answer = await client.call_tool("execute_shell", {"command": "true", "network": "none"})
        assert answer.content[0].text.startswith("engine_unreachable")  # it was taken: nothing else is there


async def test_the_server_as_a_whole_says_the_same_of_the_network(connected: Any) -> None:
    async with connected("auto") as client:
        assert "There is no network." in client.instructions
    async with connected("legacy", egress={"allow": ["api.example.com"]}) as client:
        assert "no network but these hosts" in client.instructions
        assert "api.example.com" in client.instructions


async def test_every_hint_is_given_and_true(connected: Any) -> None:
    for allow in ([], ["api.example.com"]):
        for tool in (await tools_of(connected, egress={"allow": allow})).values():
            hints = tool["annotations"]
            assert hints["destructiveHint"] is False
            executes = tool["name"].startswith("execute_")
            assert hints["openWorldHint"] is (executes and bool(allow))
            if executes:
                assert hints["readOnlyHint"] is False
                assert hints["idempotentHint"] is False
            assert hints["title"]


async def test_the_schemas_are_flat_strict_and_valid(connected: Any) -> None:
    for tool in (await tools_of(connected)).values():
        for schema in (tool["inputSchema"], tool["outputSchema"]):
            jsonschema.Draft202012Validator.check_schema(schema)
            assert schema["type"] == "object"
            for node in nodes(schema):
                assert not {"$ref", "$defs", "definitions"} & node.keys()
                assert not isinstance(node.get("type"), list)
        assert tool["inputSchema"]["additionalProperties"] is False
        for name, argument in tool["inputSchema"]["properties"].items():
            assert isinstance(argument["type"], str), name
            assert argument["description"], name
            assert name in tool["inputSchema"].get("required", []) or "default" in argument


def nodes(value: Any) -> list[dict[str, Any]]:
    """Return every object in a JSON value."""
    if isinstance(value, list):
        return [node for item in value for node in nodes(item)]
    if not isinstance(value, dict):
        return []
    return [value, *nodes(list(value.values()))]
