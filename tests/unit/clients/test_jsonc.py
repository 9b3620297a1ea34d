"""A member goes into JSON with comments and comes out again, whatever the text looks like."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_sandbox.clients.jsonc import Malformed, drop, parse, put

PATH = ["servers", "sandbox"]
VALUE = {"command": '/x "y" // z', "args": ["a,", "}"], "env": {"K": "{"}}

scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)
blanks = st.sampled_from(["", " ", "\n", "\n\t", "\r\n", " /* } , */ ", ' // { " ,\n', "/**/", "\n\n  "])


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Write an object as no formatter would: comments and blanks anywhere, trailing commas now and then."""

    def written(value: object) -> str:
        if isinstance(value, dict):
            parts = [
                f"{draw(blanks)}{json.dumps(key)}{draw(blanks)}:{draw(blanks)}{written(each)}{draw(blanks)}"
                for key, each in value.items()
            ]
            return "{" + ",".join(parts) + closing(parts) + "}"
        if isinstance(value, list):
            parts = [f"{draw(blanks)}{written(each)}{draw(blanks)}" for each in value]
            return "[" + ",".join(parts) + closing(parts) + "]"
        return json.dumps(value)

    def closing(parts: list[str]) -> str:
        return ("," if parts and draw(st.booleans()) else "") + draw(blanks)

    servers = st.fixed_dictionaries({"servers": st.dictionaries(st.text(max_size=6), values, max_size=3)})
    others = draw(st.dictionaries(st.text(max_size=4), values, max_size=3))
    data = {**others, **draw(servers | st.just({}))}
    return draw(blanks) + written(data) + draw(blanks)


@given(documents())
def test_a_member_that_was_put_in_is_all_that_changes(text: str) -> None:
    before = parse(text)
    after = put(text, PATH, VALUE)
    assert parse(after) == {**before, "servers": {**before.get("servers", {}), "sandbox": VALUE}}
    assert put(after, PATH, VALUE) == after


@given(documents())
def test_comments_are_as_many_as_before(text: str) -> None:
    assert text.count("/*") == drop(put(text, PATH, VALUE), PATH).count("/*")
    assert text.count("//") == drop(put(text, PATH, VALUE), PATH).count("//")


@given(documents())
def test_a_member_that_was_put_in_and_dropped_leaves_what_was_said(text: str) -> None:
    before = parse(text)
    assert parse(drop(put(text, PATH, VALUE), PATH)) == {**before, "servers": before.get("servers", {})}


@given(documents(), values)
def test_a_value_is_replaced_in_its_place(text: str, value: object) -> None:
    after = put(put(text, PATH, VALUE), [*PATH, "command"], value)
    assert parse(after)["servers"]["sandbox"] == {**VALUE, "command": value}


@given(st.dictionaries(st.text(alphabet='{}[]",:/*\\\n a1'), values, max_size=3), st.sampled_from([None, 2]))
def test_what_looks_like_a_comment_within_a_string_is_none(
    data: dict[str, object], indent: int | None
) -> None:
    assert parse(json.dumps(data, indent=indent)) == data


@pytest.mark.parametrize(
    "text",
    ['{"a": 1,,}', "{,}", "[,]", '{"a": [,]}', '{"a" "b"}', '{"a": 1} {}', '{"a": /* 1}', "7", '{"a": 01}'],
)
def test_what_no_client_reads_is_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        parse(text)


def test_a_comment_on_the_line_of_the_last_server_stays_with_it() -> None:
    before = '{\n  "servers": {\n    "a": {} // first\n  }\n}\n'
    after = put(before, PATH, {"command": "x"})
    assert '"a": {}, // first\n    "sandbox": {' in after
    assert drop(after, PATH) == before
