"""Where secrets come from: each source gives its value, and one that cannot is named, its value never."""

from __future__ import annotations

import os
import sys
import types
from typing import TYPE_CHECKING

import anyio
import pytest

from mcp_sandbox import secret_sources
from mcp_sandbox.config.policy import SecretUse
from mcp_sandbox.config.settings import SecretSettings
from mcp_sandbox.secret_sources import SecretSources

if TYPE_CHECKING:
    from pathlib import Path

    from mcp_sandbox.secret_sources import Fetched

VALUE = "s3cr3t-value"


async def fetch(environ: dict[str, str] | None = None, **source: object) -> Fetched:
    with anyio.fail_after(20):
        settings = SecretSettings.model_validate(source)
        return await SecretSources({"KEY": settings}, environ or dict(os.environ)).fetch(
            {"KEY": SecretUse(name="KEY")}
        )


def told(fetched: Fetched) -> str:
    assert fetched.missing is not None
    assert fetched.values == {}
    assert fetched.missing.code == "secret_missing"
    assert "the secret KEY" in str(fetched.missing)
    assert VALUE not in str(fetched.missing)
    return str(fetched.missing)


async def test_each_source_gives_its_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text(f"{VALUE}\n")
    keyring = types.SimpleNamespace(get_password=lambda service, user: VALUE if user == "me" else None)
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    for source in (
        {"file": str(file)},
        {"command": ["printf", "%s\n", VALUE]},
        {"keyring": "https://service:me"},
    ):
        assert (await fetch(**source)).values == {"KEY": VALUE.encode()}
    assert (await fetch({"V": VALUE}, env="V")).values == {"KEY": VALUE.encode()}


async def test_a_command_gets_no_shell_and_no_input() -> None:
    fetched = await fetch(command=["printf", "%s", "$(id); `id` > x"])
    assert fetched.values == {"KEY": b"$(id); `id` > x"}
    assert "it is empty" in told(await fetch(command=["cat"]))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"env": "NOT_THERE"}, "the environment variable NOT_THERE: it is not set"),
        ({"file": "/not/there"}, "the file /not/there: no such file or directory"),
        ({"file": "/dev"}, "is a directory"),
        ({"file": "/dev/zero"}, "it is no regular file"),
        ({"command": ["/not/there"]}, "the command '/not/there': no such file or directory"),
        ({"command": ["sh", "-c", f"echo {VALUE}; echo {VALUE} >&2; exit 3"]}, "exit status 3"),
        ({"command": ["true"]}, "it is empty"),
        ({"command": ["echo", "abc"]}, "fewer than 6 bytes"),
        ({"command": ["printf", r"abcdefgh\0ijk"]}, "NUL byte"),
        ({"command": ["yes"]}, "it printed more than"),
    ],
)
async def test_what_cannot_be_had_is_named_with_its_source(
    source: dict[str, object], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert words in told(await fetch(**source))
    assert VALUE not in "".join(capfd.readouterr())


async def test_a_pipe_that_nobody_writes_to_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "it is no regular file" in told(await fetch(file=str(tmp_path / "pipe")))


async def test_a_command_that_takes_too_long_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_sources, "FETCH_SECONDS", 0.5)
    script = f"sleep 60 & echo $! > {tmp_path}/pid; wait"
    assert "it took more than 0.5 s" in told(await fetch(command=["sh", "-c", script]))
    pid = int((tmp_path / "pid").read_text())
    with anyio.fail_after(5):
        while is_running(pid):  # noqa: ASYNC110  # it is nobody's child here
            await anyio.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_without_the_keyring_library_the_error_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert "pip install 'mcp-sandbox[keyring]'" in told(await fetch(keyring="service:me"))


async def test_of_a_keyring_that_fails_only_the_kind_of_failure_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(service: str, user: str) -> str:
        raise RuntimeError(VALUE)

    monkeypatch.setitem(sys.modules, "keyring", types.SimpleNamespace(get_password=fails))
    assert "the keyring failed (RuntimeError)" in told(await fetch(keyring="service:me"))


async def test_the_other_secrets_are_fetched_though_one_is_missing() -> None:
    sources = {
        "A": SecretSettings(env="GONE"),
        "B": SecretSettings(env="THERE"),
        "C": SecretSettings(env="GONE"),
    }
    fetched = await SecretSources(sources, {"THERE": VALUE}).fetch(
        {name: SecretUse(name=name) for name in sources}
    )
    assert fetched.values == {"B": VALUE.encode()}
    assert "the secret A " in str(fetched.missing)
    assert VALUE not in repr(fetched)
