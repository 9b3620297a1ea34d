"""What a program asks for in a `# /// script` block, as PEP 723 has it."""

from __future__ import annotations

import pytest

from mcp_sandbox.locks.script import BlockInvalid, Inline, inline_dependencies

PROGRAM = """\
#!/usr/bin/env python3
# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "requests<3",
#   "Rich[jupyter] ; python_version > '3'",
# ]
#
# [tool.uv]
# index = "ignored"
# ///

import requests
"""


def test_a_block_is_read() -> None:
    assert inline_dependencies(PROGRAM) == Inline(
        dependencies=('Rich[jupyter]; python_version > "3"', "requests<3"),
        names=("requests", "rich"),
        requires_python=">=3.11",
    )
    assert inline_dependencies(PROGRAM.replace("\n", "\r\n")) == inline_dependencies(PROGRAM)


@pytest.mark.parametrize(
    "program",
    [
        "print(1)",
        "# /// script\n# dependencies = []\n# ///\n",
        "# /// script\n# requires-python = '>=3'\n# ///\n",
        '# /// other\n# dependencies = ["x"]\n# ///\n',
        'print("""# /// script""")\n',
        '# /// script\n# dependencies = ["x"]\n',  # never closed
        '    # /// script\n    # dependencies = ["x"]\n    # ///\n',
    ],
)
def test_a_program_without_one_asks_for_nothing(program: str) -> None:
    assert inline_dependencies(program) is None


def block(content: str) -> str:
    return "# /// script\n" + "".join(f"# {line}\n" for line in content.splitlines()) + "# ///\n"


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("\n".join([block('dependencies = ["x"]')] * 2), "is there more than once"),
        (block("dependencies = ["), "is no valid TOML"),
        (block('dependencies = "x"'), "are no list of text"),
        (block("dependencies = [1]"), "are no list of text"),
        (block(f"dependencies = {['x'] * 101}"), "names 101 packages; at most 100 are taken"),
        (block('dependencies = ["x y z"]'), "which is no requirement"),
        (block('dependencies = ["-r /etc/passwd"]'), "which is no requirement"),
        (block('dependencies = ["x @ https://evil.example/x.whl"]'), "asks for x from a place of its own"),
        (block('dependencies = ["x"]\nrequires-python = "three"'), "is no version specifier"),
    ],
)
def test_what_cannot_be_understood_is_refused(program: str, words: str) -> None:
    with pytest.raises(BlockInvalid) as raised:
        inline_dependencies(program)
    assert words in str(raised.value)
