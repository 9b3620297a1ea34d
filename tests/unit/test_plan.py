"""What a call comes to under a policy, and every call that comes to nothing."""

from __future__ import annotations

import math
from dataclasses import asdict

import pytest

from mcp_sandbox.config.policy import Policy
from mcp_sandbox.errors import RequestRefused
from mcp_sandbox.guest.protocol import agent_command
from mcp_sandbox.model import ExecutionRequest, Terminal
from mcp_sandbox.plan import MAX_FILES, SHELL_CODE_BYTES, plan, spec

MIB = 1 << 20

POLICY = Policy(
    image="example/image",
    runtime="runsc",
    timeout_seconds=10,
    max_timeout_seconds=60,
    memory=512 * MIB,
    cpus=1.5,
    pids_limit=200,
    scratch_size=100 * MIB,
    tmp_size=20 * MIB,
    shm_size=10 * MIB,
    nofile=512,
    inodes=3000,
    code_limit=4096,
    output_limit=4000,
    input_limit=2048,
    artifact_count=5,
    artifact_limit=10 * MIB,
    artifact_total_limit=20 * MIB,
    user="1234:2345",
    path="/home/me/papers",
)


def python(code: str, **more: object) -> ExecutionRequest:
    return ExecutionRequest.model_validate({"language": "python", "code": code, **more})


def shell(code: str, **more: object) -> ExecutionRequest:
    return ExecutionRequest.model_validate({"language": "shell", "code": code, **more})


def test_a_policy_decides_the_whole_sandbox() -> None:
    assert spec(POLICY).model_dump() == {
        "image": "example/image",
        "runtime": "runsc",
        "command": agent_command(),
        "environment": (
            ("HOME", "/tmp"),
            ("LANG", "C.UTF-8"),
            ("PYTHONUNBUFFERED", "1"),
            ("TMPDIR", "/tmp"),
        ),
        "user": "1234:2345",
        "limits": {
            "memory_bytes": 512 * MIB,
            "cpus": 1.5,
            "pids": 200,
            "scratch_bytes": 100 * MIB,
            "tmp_bytes": 20 * MIB,
            "shm_bytes": 10 * MIB,
            "nofile": 512,
            "fsize_bytes": 100 * MIB,
            "inodes": 3000,
        },
        "mounts": (),
        "workspace_bytes": None,
        "unsafe_allow_unconfined_seccomp": False,
    }


def test_the_call_decides_nothing_of_the_sandbox() -> None:
    calls = [
        python("print(1)"),
        python("print(2)", timeout_seconds=60, stdin=b"in", files=[("a", b"A")]),
        shell("true", client={"name": "desk", "version": "1"}),
    ]
    assert {plan(call, POLICY).spec for call in calls} == {spec(POLICY)}


def test_the_code_and_its_data_are_in_nothing_that_inspect_shows() -> None:
    call = python("SECRET-CODE", stdin=b"SECRET-STDIN", files=[("SECRET-NAME", b"SECRET-FILE")])
    assert "SECRET" not in plan(call, POLICY).spec.model_dump_json()


def test_a_call_comes_to_a_program() -> None:
    program = plan(python("print('é')", stdin=b"in", files=[("a/b.csv", b"1,2")]), POLICY).program
    assert asdict(program) == {
        "language": "python",
        "code": "print('é')".encode(),
        "timeout_seconds": 10,
        "head_bytes": 3000,
        "tail_bytes": 1000,
        "stdin": b"in",
        "files": (("a/b.csv", b"1,2"),),
        "copies": (),
        "environment": (),
        "artifacts": (5, 10 * MIB, 20 * MIB),
        "terminal": None,
    }


def test_a_person_at_a_terminal_finds_the_program_as_a_file() -> None:
    there = Terminal(rows=24, columns=80, kind="xterm")
    planned = plan(shell("exec bash", files=[("main.py", b"1/0")], terminal=there), POLICY).program
    assert planned.terminal == (24, 80)
    assert planned.environment == (("TERM", b"xterm"),)
    assert planned.files == (("main.py", b"1/0"),)
    with pytest.raises(RequestRefused, match=r"main\.py"):
        plan(shell("exec bash", files=[("main.py", b"1/0")]), POLICY)


@pytest.mark.parametrize("seconds", [0.1, 1, 59.9, 60])
def test_a_time_within_the_policy_is_granted(seconds: float) -> None:
    assert plan(python("pass", timeout_seconds=seconds), POLICY).program.timeout_seconds == seconds


@pytest.mark.parametrize("seconds", [0, -1, 0.0999, 60.1, 1e300, math.inf, -math.inf, math.nan])
def test_a_time_beyond_the_policy_is_refused_with_what_is_allowed(seconds: float) -> None:
    with pytest.raises(RequestRefused, match=r"from 0\.1 to 60"):
        plan(python("pass", timeout_seconds=seconds), POLICY)


@pytest.mark.parametrize("code", ["", " ", "\n\t\r\n", "\N{NO-BREAK SPACE}"])
def test_an_empty_program_is_refused_by_its_argument(code: str) -> None:
    with pytest.raises(RequestRefused, match="`code` is empty"):
        plan(python(code), POLICY)
    with pytest.raises(RequestRefused, match="`command` is empty"):
        plan(shell(code), POLICY)


def test_a_lone_surrogate_is_refused_with_its_place() -> None:
    with pytest.raises(RequestRefused, match="character 7") as caught:
        plan(python("print('\ud800')"), POLICY)
    str(caught.value).encode()


def test_the_largest_program_is_counted_in_bytes() -> None:
    plan(python("#" * 4096), POLICY)
    with pytest.raises(RequestRefused, match=r"4,097 bytes; at most 4,096"):
        plan(python("#" * 4097), POLICY)
    with pytest.raises(RequestRefused, match=r"at most 4,096"):
        plan(python("#" + "é" * 2048), POLICY)


def test_a_command_is_no_larger_than_the_kernel_takes() -> None:
    generous = POLICY.model_copy(update={"code_limit": MIB})
    plan(shell("#" * SHELL_CODE_BYTES), generous)
    with pytest.raises(RequestRefused, match="at most 131,071"):
        plan(shell("#" * (SHELL_CODE_BYTES + 1)), generous)
    plan(python("#" * (SHELL_CODE_BYTES + 1)), generous)


def test_a_command_holds_no_nul() -> None:
    with pytest.raises(RequestRefused, match="NUL"):
        plan(shell("echo \0"), POLICY)
    plan(python("# \0"), POLICY)


def test_files_and_stdin_share_a_limit() -> None:
    plan(python("pass", stdin=b"x" * 1000, files=[("a", b"x" * 1000), ("b", b"x" * 48)]), POLICY)
    with pytest.raises(RequestRefused, match=r"2,049 bytes; at most 2,048"):
        plan(python("pass", stdin=b"x" * 1001, files=[("a", b"x" * 1000), ("b", b"x" * 48)]), POLICY)


def test_files_are_not_without_number() -> None:
    files = [(str(number), b"") for number in range(MAX_FILES)]
    plan(python("pass", files=files), POLICY)
    with pytest.raises(RequestRefused, match="1001 entries"):
        plan(python("pass", files=[*files, ("more", b"")]), POLICY)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "..",
        "../x",
        "a/../../x",
        "a/./b",
        "a//b",
        "a/",
        ".",
        "a\\b",
        "C:\\x",
        "a\nb",
        "a\0b",
        "\x1b[2J",
        "a\ud800b",
        "\N{RIGHT-TO-LEFT OVERRIDE}gpj.exe",
        "x" * 256,
        "é" * 128,
        "/".join(["x" * 100] * 11),
        "main.py",
    ],
)
def test_a_path_that_could_be_anywhere_else_is_refused(path: str) -> None:
    with pytest.raises(RequestRefused, match="path that is not usable") as caught:
        plan(python("pass", files=[("fine.txt", b""), (path, b"")]), POLICY)
    str(caught.value).encode()
    assert caught.value.message.isprintable()


def test_a_path_is_given_once() -> None:
    with pytest.raises(RequestRefused, match=r"'a\.txt'"):
        plan(python("pass", files=[("a.txt", b"1"), ("a.txt", b"2")]), POLICY)


@pytest.mark.parametrize("path", ["data.csv", "a/b/c", "é.txt", "a b", "...", ".hidden", "-rf", "x" * 255])
def test_a_plain_path_is_taken(path: str) -> None:
    assert plan(python("pass", files=[(path, b"")]), POLICY).program.files == ((path, b""),)


BLOCK = '# /// script\n# dependencies = ["Requests<3", "rich"]\n# ///\nimport requests\n'


def named(inline: str, *names: str) -> Policy:
    return Policy.model_validate(
        {"workspace": "lab", "dependencies": {"inline": inline, "inline_names": names}}
    )


@pytest.mark.parametrize("names", [("requests", "RICH"), ("*",)])
def test_a_program_may_name_the_packages_that_the_workspace_allows(names: tuple[str, ...]) -> None:
    inline = plan(python(BLOCK), named("allow", *names)).inline
    assert inline
    assert inline.names == ("requests", "rich")


def test_packages_that_are_not_allowed_are_named_with_the_line_that_would_allow_them() -> None:
    with pytest.raises(RequestRefused) as caught:
        plan(python(BLOCK), named("allow", "rich"))
    assert "does not allow: requests." in str(caught.value)
    assert 'under [workspaces.lab.dependencies]: inline_names = ["rich", "requests"]' in str(caught.value)
    with pytest.raises(RequestRefused) as caught:
        plan(python(BLOCK), named("deny", "*"))
    assert "does not allow: requests, rich." in str(caught.value)
    assert 'inline = "allow", inline_names = ["requests", "rich"]' in str(caught.value)
    with pytest.raises(RequestRefused, match='inline = "allow"'):
        plan(python(BLOCK), Policy())


def test_a_block_that_cannot_be_read_is_refused_and_a_shell_has_none() -> None:
    with pytest.raises(RequestRefused, match="`# /// script` block is no valid TOML"):
        plan(python(BLOCK.replace("]", "")), named("allow", "*"))
    assert plan(shell(BLOCK), named("deny")).inline is None
