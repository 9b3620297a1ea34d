"""What can be said of the agent without running it, which must only happen in a PID namespace of its own."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib.resources import files

import pytest

from mcp_sandbox.guest import protocol
from mcp_sandbox.guest.protocol import Kind, Refusal, agent_command

SOURCE = files("mcp_sandbox.guest.inside").joinpath("agent.py").read_text(encoding="utf-8")
TREE = ast.parse(SOURCE)


def constant(name: str) -> object:
    """Return the value that the agent gives a module-level name."""
    for node in TREE.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == name
        ):
            return eval(
                compile(ast.Expression(node.value), "agent", "eval"), {"struct": __import__("struct")}
            )
    raise KeyError(name)


def test_it_is_the_command_of_the_container() -> None:
    assert agent_command() == ("python3", "-I", "-S", "-c", SOURCE)


def test_it_fits_into_one_argument() -> None:
    assert len(SOURCE.encode()) < 128 << 10  # the kernel's MAX_ARG_STRLEN


def test_it_is_python_3_8() -> None:
    ast.parse(SOURCE, feature_version=(3, 8))
    for later in ("removeprefix", "removesuffix", "pairwise", "zip(strict", "math.lcm"):
        assert later not in SOURCE


def test_it_imports_the_standard_library_alone() -> None:
    imported = {alias.name for node in ast.walk(TREE) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "." for node in ast.walk(TREE) if isinstance(node, ast.ImportFrom)}
    assert imported <= sys.stdlib_module_names


def test_it_imports_little() -> None:
    # A waiting sandbox pays for every import in memory, a new one in time.
    listing = "import sys; before = set(sys.modules); {}; print(len(set(sys.modules) - before))"
    imports = "; ".join(
        ast.unparse(node) for node in TREE.body if isinstance(node, ast.Import | ast.ImportFrom)
    )
    command = [sys.executable, "-I", "-S", "-c", listing.format(imports)]
    assert int(subprocess.run(command, capture_output=True, check=True).stdout) <= 30


def test_it_refuses_to_run_where_it_would_kill_others() -> None:
    main = next(node for node in TREE.body if isinstance(node, ast.FunctionDef) and node.name == "main")
    first = main.body[0]
    assert isinstance(first, ast.If)
    assert ast.unparse(first.test) == "os.getpid() != 1"
    assert "sys.exit" in ast.unparse(first.body[-1])
    # And nothing is done on the way there.
    statements = [
        node for node in TREE.body if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Import)
    ]
    assert [ast.unparse(node) for node in statements if not isinstance(node, ast.Assign)][1:] == ["main()"]


def test_both_halves_say_the_same() -> None:
    up, down = constant("UP"), constant("DOWN")
    assert (up.format, down.format) == (protocol._UP.format, protocol._DOWN.format)  # type: ignore[attr-defined]
    assert constant("CHUNK") == protocol.MAX_PAYLOAD
    assert constant("MAX_PATH") == protocol.MAX_PATH_BYTES
    assert f"protocol={protocol.PROTOCOL}" in SOURCE


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_of_frame_is_one_that_it_sends(kind: Kind) -> None:
    # The tails' kinds are made from those of their streams.
    sent = kind.value.lower() if kind in (Kind.STDOUT_TAIL, Kind.STDERR_TAIL) else kind.value
    assert re.search(rf'(send|send_fields|Output)\(\s*b"{sent.decode()}"', SOURCE)


@pytest.mark.parametrize("reason", Refusal.__args__)  # type: ignore[attr-defined]
def test_every_reason_to_keep_a_file_back_is_one_that_it_gives(reason: str) -> None:
    assert f'"{reason}"' in SOURCE
