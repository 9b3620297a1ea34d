"""Whatever stands in the files and the environment: a configuration, or one error in words."""

from __future__ import annotations

import json
import string
import tempfile
from pathlib import Path
from unittest import mock

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcp_sandbox.config.policy import Policy
from mcp_sandbox.config.profiles import looser
from mcp_sandbox.config.settings import FileSettings, PolicySettings
from mcp_sandbox.errors import ConfigError
from mcp_sandbox.workspace import load_configuration

KEYS = st.sampled_from(
    [*PolicySettings.model_fields, *FileSettings.model_fields, "path", "host", "max_queued", "x"]
)
SCALARS = st.one_of(
    st.sampled_from(
        [
            "1GiB",
            "64MiB",
            "700MiB",
            "1TiB",
            "16KiB",
            "untrusted",
            "standard",
            "runsc",
            "runc",
            "1000:1000",
            "0:0",
            "~",
            "/",
        ]
    ),
    st.text(max_size=8),
    st.integers(),
    st.integers(1, 2000),
    st.floats(),
    st.floats(0.1, 40),
    st.booleans(),
)


def toml(value: object) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{json.dumps(key)} = {toml(each)}" for key, each in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(toml, value)) + "]"
        case str():
            return (
                '"'
                + "".join(
                    f"\\U{ord(each):08x}" if each not in string.ascii_letters else each for each in value
                )
                + '"'
            )
        case bool():
            return str(value).lower()
    return str(value)


TABLE = st.dictionaries(KEYS, SCALARS, max_size=5)
DOCUMENTS = st.dictionaries(
    KEYS,
    st.one_of(
        SCALARS, TABLE, st.lists(TABLE, max_size=2), st.dictionaries(st.sampled_from(["a", "b", "A"]), TABLE)
    ),
    max_size=5,
).map(lambda document: "".join(f"{key} = {toml(value)}\n" for key, value in document.items()).encode())

# Pieces of real files, put together by chance: more of them are valid than of arbitrary bytes.
LINES = st.sampled_from(
    b"""\
[defaults]
[workspaces.a]
[server]
[audit]
profile = "untrusted"
profile = "standard"
memory = "2GiB"
memory = "800MiB"
memory = "400MiB"
timeout_seconds = 5
timeout_seconds = 50
max_timeout_seconds = 20
runtime = "runsc"
runtime = "runc"
pids_limit = 100
pids_limit = 200
nofile = 100
scratch_size = "100MiB"
scratch_size = "500MiB"
image = "x"
user = "5:5"
cpus = 0.5
cpus = 4
unsafe_allow_unconfined_seccomp = true
unsafe_run_unrecorded = true
\"\"\"
[
#""".splitlines()
)
FILES = st.one_of(
    st.binary(max_size=200), DOCUMENTS, st.lists(LINES, max_size=8, unique=True).map(b"\n".join)
)


def load(own: bytes, folder_file: bytes | None, **asked: object) -> tuple[Policy, Policy] | str:
    """Return the policies without and with a folder's file, or the error's text."""
    with tempfile.TemporaryDirectory() as temporary, mock.patch.dict("os.environ", {"HOME": temporary}):
        home = Path(temporary)
        config_file, folder = home / "config.toml", home / "folder"
        config_file.write_bytes(own)
        folder.mkdir()
        arguments = {"workspace": str(folder), "environ": {}, "cwd": folder} | asked
        try:
            before = load_configuration(config_file=config_file, **arguments)  # type: ignore[arg-type]
            if folder_file is not None:
                (folder / "mcp-sandbox.toml").write_bytes(folder_file)
            after = load_configuration(config_file=config_file, **arguments)  # type: ignore[arg-type]
        except ConfigError as error:
            return str(error)
        return before.policy, after.policy


def assert_in_words(loaded: object) -> None:
    if isinstance(loaded, str):
        loaded.encode()  # no lone surrogates
        assert all(line.isprintable() for line in loaded.splitlines())
        assert len(loaded.splitlines()) <= 12
        assert "Input should" not in loaded


@given(own=FILES)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_file_is_a_configuration_or_an_error_in_words(own: bytes) -> None:
    assert_in_words(load(own, None))


@given(
    asked=st.text(max_size=20),
    environ=st.dictionaries(
        st.sampled_from(
            [
                "MCP_SANDBOX_CONFIG",
                "MCP_SANDBOX_WORKSPACE",
                "CLAUDE_PROJECT_DIR",
                "DOCKER_HOST",
                "XDG_RUNTIME_DIR",
            ]
        ),
        st.text(max_size=20),
    ),
    named=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_any_request_is_a_configuration_or_an_error_in_words(
    asked: str, environ: dict[str, str], named: bool
) -> None:
    assert_in_words(load(b"", b"", workspace=asked if named else None, environ=environ))


# Tables that are valid key by key, so that what is compared is what they come to.
SIZES = ["16MiB", "32MiB", "100MiB", "400MiB", "512MiB", "800MiB", "2GiB"]
CHOICES: dict[str, list[object]] = {
    "profile": ["standard", "untrusted"],
    "image": ["mcp-sandbox/standard", "x"],
    "runtime": ["", "runc", "runsc"],
    "user": ["", "5:5"],
    "cpus": [0.5, 1.0, 4.0],
    **{key: [5, 10, 20, 30, 300, 500] for key in ("timeout_seconds", "max_timeout_seconds")},
    **{key: list(SIZES) for key in ("memory", "scratch_size", "tmp_size", "shm_size")},
    **{key: ["2KiB", "16KiB", "300KiB", "1MiB"] for key in ("code_limit", "output_limit", "reply_limit")},
    **{key: [128, 256, 300, 2000, 20000] for key in ("pids_limit", "nofile", "inodes")},
}
TABLES = st.lists(st.sampled_from(sorted(CHOICES)), unique=True, max_size=4).flatmap(
    lambda keys: st.fixed_dictionaries({key: st.sampled_from(CHOICES[key]) for key in keys})
)


def lines_of(table: dict[str, object]) -> str:
    return "".join(f"{key} = {toml(value)}\n" for key, value in table.items())


@given(defaults=TABLES, entry=TABLES, folder=TABLES)
@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_folder_ever_loosens_the_users_policy(
    defaults: dict[str, object], entry: dict[str, object], folder: dict[str, object]
) -> None:
    own = f'[defaults]\n{lines_of(defaults)}[workspaces.a]\npath = "~/folder"\n{lines_of(entry)}'
    loaded = load(own.encode(), lines_of(folder).encode(), workspace="a")
    assert_in_words(loaded)
    if isinstance(loaded, str):
        return
    before, after = loaded
    for key in Policy.model_fields:
        assert not looser(key, getattr(after, key), getattr(before, key)), key


@given(defaults=TABLES)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_choosing_untrusted_never_loosens_and_never_fails_for_the_defaults(
    defaults: dict[str, object],
) -> None:
    own = f"[defaults]\n{lines_of(defaults)}[workspaces.a]\n"
    without = load(own.encode(), None, workspace="a")
    with_it = load(f'{own}profile = "untrusted"\n'.encode(), None, workspace="a")
    if isinstance(without, str):
        return
    assert not isinstance(with_it, str)
    for key in Policy.model_fields:
        assert not looser(key, getattr(with_it[1], key), getattr(without[1], key)), key


@given(own=FILES, folder_file=FILES)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_two_files_are_a_configuration_or_an_error_in_words(own: bytes, folder_file: bytes) -> None:
    assert_in_words(load(own, folder_file))
