"""A table goes into TOML and comes out again, and every comment stays where it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_sandbox.clients.jsonc import Malformed
from mcp_sandbox.clients.toml import drop, parse, put

PATH = ["mcp_servers", "sandbox"]
VALUE = {"command": "/x # no comment", "args": ["a", "[b]"], "env": {"K": "v"}}

names = st.sampled_from(["a", "b", "sand", '"sand.box"', "tui", "projects"])
comments = st.sampled_from(["", "# note\n", "\n", "\n# two\n# lines\n", "# [mcp_servers.sandbox]\n"])
values = st.sampled_from(
    ["1", '"x # y"', "[1, 2]", "[\n  1, # one\n  2,\n]", "{ k = 'v' }", '"""\n[z]\n# no\n"""', "1979-05-27"]
)
headers = st.sampled_from(["mcp_servers.", "", "mcp_servers.a."])


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Write tables in any order, with comments before, in and after them; some are no TOML."""
    parts = [draw(comments)]
    for number in range(draw(st.integers(0, 4))):
        parts.append(f"[{draw(headers)}{draw(names)}.n{number}]{draw(st.sampled_from(['', ' # here']))}\n")
        parts += [
            f"k{key} = {draw(values)}{draw(st.sampled_from(['', ' # there']))}\n{draw(comments)}"
            for key in range(draw(st.integers(0, 2)))
        ]
        parts.append(draw(comments))
    return "".join(parts)


@given(documents(), st.sampled_from(["\n", "\r\n"]))
def test_a_table_that_was_put_in_and_dropped_leaves_the_same_bytes(text: str, newline: str) -> None:
    text = text.replace("\n", newline)
    before = parse(text)
    after = put(text, PATH, VALUE)
    servers = {**before.get("mcp_servers", {}), "sandbox": VALUE}
    assert parse(after) == {**before, "mcp_servers": servers}
    assert after.startswith(text)
    assert put(after, PATH, VALUE) == after
    assert drop(after, PATH) == text


@given(documents(), documents())
def test_what_came_after_a_table_stays_with_its_comments(text: str, more: str) -> None:
    try:
        whole = parse(text + more.replace("[", "[x."))
    except Malformed:
        return
    after = put(text, PATH, VALUE) + more.replace("[", "[x.")
    left = drop(after, PATH)
    assert parse(left) == whole
    assert left.count("#") == after.count("#") - put("", PATH, VALUE).count("#")


@pytest.mark.parametrize(
    "text",
    [
        "mcp_servers = { a = { command = 'x' } }\n",
        "[mcp_servers]\na = { command = 'x' }\n",
        "mcp_servers.a.command = 'x'\n",
        "[mcp_servers.a]\nx = 1\n[tui]\ny = 1\n[mcp_servers.b]\nz = 1\n",
    ],
)
def test_servers_may_be_written_in_any_way(text: str) -> None:
    after = put(text, PATH, VALUE)
    assert parse(after)["mcp_servers"]["sandbox"] == VALUE
    assert drop(after, PATH) == text


def test_an_entry_is_changed_in_its_place() -> None:
    text = put("# first\n", PATH, VALUE).replace('K = "v"', 'K = "v" # mine') + "\n# last\n[tui]\n"
    after = put(text, PATH, {"command": "/y", "env": {"K": "w", "L": "1"}})
    assert parse(after)["mcp_servers"]["sandbox"] == {
        "command": "/y",
        "args": VALUE["args"],
        "env": {"K": "w", "L": "1"},
    }
    assert after.startswith("# first\n")
    assert after.endswith("\n# last\n[tui]\n")


def test_line_ends_of_both_kinds_stay_as_they_are() -> None:
    text = "a = 1\r\n# unix\n[b]\n\r\n[c]\r\n"
    after = put(text, PATH, VALUE)
    assert after.startswith(text)
    changed = put(after, PATH, {"env": {"L": "1"}})
    assert changed.startswith(text)
    assert drop(changed, PATH) == text
