"""A client's file takes an entry and gives it up again, and nobody's work in it is harmed."""

from __future__ import annotations

import difflib
import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mcp_sandbox.clients.file import ClientFile, client_file
from mcp_sandbox.clients.launch import Launch
from mcp_sandbox.clients.table import CLIENTS, Client
from mcp_sandbox.errors import ConfigError
from tests.privileges import unprivileged

from .conftest import CONFIGS, LAUNCH, existing, lay

if TYPE_CHECKING:
    from collections.abc import Iterator


def install(client: Client, home: Path, name: str = "sandbox", launch: Launch = LAUNCH) -> ClientFile:
    file = client_file(client, home, {})
    file.write(file.having(name, launch))
    return client_file(client, home, {})


def uninstall(client: Client, home: Path, *names: str) -> None:
    file = client_file(client, home, {})
    file.write(file.without(names or ("sandbox",)))


def refused(client: Client, home: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        install(client, home)
    return str(caught.value)


def everything_in(home: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in home.rglob("*")}


BLANK = [b"", b"\n", b"{}", b"{ }\n", b"{\n}\n"]


@pytest.mark.parametrize("content", [None, *BLANK], ids=repr)
def test_a_file_that_is_absent_or_empty_comes_back_to_the_byte(
    client: Client, home: Path, content: bytes | None
) -> None:
    if content and client.format == "toml":
        content = content.translate(None, b"{ }")
    if content is not None:
        lay(client, home, content)
    before = everything_in(home)
    assert install(client, home).ours == {"sandbox": LAUNCH}
    uninstall(client, home)
    assert {path: text for path, text in everything_in(home).items() if text is not None} == {
        path: text for path, text in before.items() if text is not None
    }


def test_a_file_with_other_servers_and_comments_comes_back_to_the_byte(client: Client, home: Path) -> None:
    before = existing(client)
    path = lay(client, home, before)
    file = install(client, home)
    assert file.ours == {"sandbox": LAUNCH}
    assert file.backup.read_bytes() == before
    uninstall(client, home)
    assert path.read_bytes() == before
    assert [other.name for other in path.parent.iterdir()] == [path.name]


def test_what_else_stands_in_a_file_stays_to_the_byte(client: Client, home: Path) -> None:
    before = existing(client)
    path = lay(client, home, before)
    install(client, home)
    lines = difflib.ndiff(
        before.decode().splitlines(keepends=True), path.read_bytes().decode().splitlines(keepends=True)
    )
    gone = [line for line in lines if line.startswith("- ")]
    # The line before may have got a comma.
    assert len(gone) <= 1
    assert all(gone_line.strip().endswith(("}", "} // keeps notes", "},")) for gone_line in gone)


def test_an_edit_by_somebody_else_between_install_and_uninstall_stays(client: Client, home: Path) -> None:
    path = lay(client, home, existing(client))
    install(client, home)
    text = path.read_bytes().decode()
    comment = "# mine\n" if client.format == "toml" else "" if client.format == "json" else "// mine\n"
    edited = (
        f'{comment}my_own = "x"\n{text}'
        if client.format == "toml"
        else comment + text.replace("{", '{\n  "my_own": "x",', 1)
        if "// Zed" not in text
        else text.replace('"vim_mode": true,', '"vim_mode": true, "my_own": "x", // mine')
    )
    path.write_bytes(edited.encode())
    uninstall(client, home)
    after = path.read_bytes().decode()
    assert client_file(client, home, {}).ours == {}
    assert client_file(client, home, {}).data["my_own"] == "x"
    assert ("mine" in after) is (client.format != "json")


def test_several_entries_stand_side_by_side_and_each_goes_alone(client: Client, home: Path) -> None:
    before = existing(client)
    path = lay(client, home, before)
    install(client, home)
    other = Launch(LAUNCH.command, ("serve", "--workspace", "downloads"), LAUNCH.env)
    assert install(client, home, "sandbox-downloads", other).ours == {
        "sandbox": LAUNCH,
        "sandbox-downloads": other,
    }
    uninstall(client, home)
    assert client_file(client, home, {}).ours == {"sandbox-downloads": other}
    uninstall(client, home, "sandbox-downloads")
    assert path.read_bytes() == before


def test_an_entry_that_is_there_is_written_once(client: Client, home: Path) -> None:
    lay(client, home, existing(client))
    file = install(client, home)
    assert file.having("sandbox", LAUNCH).content == file.content


def test_a_new_address_leaves_what_a_person_added_to_the_entry(client: Client, home: Path) -> None:
    path = lay(client, home, existing(client))
    install(client, home)
    env = client.shape.env
    text = path.read_bytes().decode()
    if client.format == "toml":
        text = text.replace(
            f"[mcp_servers.sandbox.{env}]", f'mine = true\n\n[mcp_servers.sandbox.{env}]\nKEY = "k"'
        )
    else:
        ours = text.rindex('"sandbox": {')
        text = text[:ours] + text[ours:].replace(f'"{env}": {{', f'"mine": true, "{env}": {{ "KEY": "k",', 1)
    path.write_text(text, newline="")
    moved = Launch("/opt/mcp-sandbox", LAUNCH.args, {"DOCKER_HOST": "unix:///new.sock"})
    file = install(client, home, launch=moved)
    assert file.ours["sandbox"].command == "/opt/mcp-sandbox"
    assert file.ours["sandbox"].env == {"KEY": "k", "DOCKER_HOST": "unix:///new.sock"}
    entry = file.data
    for key in (*file.servers, "sandbox"):
        entry = entry[key]
    assert entry["mine"] is True


MALFORMED = {
    "json": [b"{", b"[]", b'{"a": 1,}', b'{"a": 1} // note\n', b'{"a": NaN}', b'{"a": 1} x', b"[" * 100_000],
    "jsonc": [
        b"{",
        b"[]",
        b'{"a": 1,,}',
        b"{,}",
        b'{"a": Infinity}',
        b'{"a": /* }',
        b"{'a': 1}",
        b'{"a":' * 100_000,
    ],
    "toml": [b"[", b"a = ", b"a = 1\na = 2\n", b"a = " + b"[" * 100_000],
}


def test_a_malformed_file_is_refused_and_not_touched(client: Client, home: Path) -> None:
    for content in MALFORMED[client.format]:
        path = lay(client, home, content)
        error = refused(client, home)
        assert str(path) in error
        assert "Nothing was written" in error
        assert f"install {client.name} --print" in error
        assert everything_in(path.parent) == {path: content}


def test_the_line_of_the_fault_is_named(home: Path) -> None:
    lay(CLIENTS["vscode"], home, b'{\n  // servers\n  "servers": {\n    "x" 1\n  }\n}\n')
    assert "mcp.json, line 4: column 9: not valid JSON: expecting ':' delimiter." in refused(
        CLIENTS["vscode"], home
    )


def test_a_file_that_is_not_utf_8_is_refused_and_not_touched(client: Client, home: Path) -> None:
    content = b"\n# caf\xe9\n" if client.format == "toml" else b'{\n  "caf\xe9": 1\n}\n'
    path = lay(client, home, content)
    assert "line 2: not valid UTF-8" in refused(client, home)
    assert everything_in(path.parent) == {path: content}


def test_a_byte_order_mark_and_the_line_ends_stay(client: Client, home: Path) -> None:
    before = b"\xef\xbb\xbf" + existing(client).replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    path = lay(client, home, before)
    install(client, home)
    content = path.read_bytes()
    assert content.startswith(b"\xef\xbb\xbf")
    assert content.count(b"\n") == content.count(b"\r\n")
    uninstall(client, home)
    assert path.read_bytes() == before


def test_servers_that_are_no_table_are_refused_and_not_touched(client: Client, home: Path) -> None:
    key = client.servers[0][0]
    for value in ("7", "[]", '"x"'):
        content = f"{key} = {value}\n" if client.format == "toml" else f'{{"{key}": {value}}}'
        path = lay(client, home, content.encode())
        assert f"`{key}` is not a" in refused(client, home)
        assert everything_in(path.parent) == {path: content.encode()}


def test_a_key_that_is_there_twice_is_refused(home: Path) -> None:
    lay(CLIENTS["vscode"], home, b'{"servers": {"a": {}},\n "servers": {}}')
    assert "line 2: `servers` is there twice" in refused(CLIENTS["vscode"], home)


def test_an_entry_of_our_name_that_starts_another_program_is_not_replaced(client: Client, home: Path) -> None:
    lay(client, home, existing(client))
    foreign = Launch("/usr/bin/other", ("--stdio",), {})
    file = client_file(client, home, {})
    file.write(file.having("sandbox", foreign))
    before = everything_in(home)
    assert "`sandbox` is there already, and starts another program" in refused(client, home)
    assert everything_in(home) == before


@pytest.mark.parametrize("depth", [1, 2])
def test_a_symbolic_link_stays_and_what_it_leads_to_is_written(
    client: Client, home: Path, depth: int
) -> None:
    path = lay(client, home, existing(client))
    real = home / "dotfiles" / "the file"
    real.parent.mkdir()
    path.rename(real)
    if depth == 2:
        (real.parent / "between").symlink_to("the file")
    path.symlink_to(real if depth == 1 else real.parent / "between")
    install(client, home)
    assert path.is_symlink()
    assert real.is_file()
    assert not real.is_symlink()
    assert b"mcp-sandbox" in real.read_bytes()
    uninstall(client, home)
    assert path.is_symlink()
    assert real.read_bytes() == existing(client)
    assert sorted(entry.name for entry in real.parent.iterdir()) == sorted(
        ["the file", *(["between"] if depth == 2 else [])]
    )


def test_a_link_to_nothing_is_refused_and_stays(home: Path) -> None:
    path = CLIENTS["zed"].files(home, {})[0]
    path.parent.mkdir(parents=True)
    path.symlink_to(home / "gone")
    assert "a symbolic link to nothing" in refused(CLIENTS["zed"], home)
    assert path.is_symlink()


def test_a_link_that_leads_to_itself_is_refused(home: Path) -> None:
    path = CLIENTS["zed"].files(home, {})[0]
    path.parent.mkdir(parents=True)
    path.symlink_to(path)
    assert "cannot be read" in refused(CLIENTS["zed"], home)


def test_a_file_of_ours_that_changed_since_it_was_read_is_not_removed(home: Path) -> None:
    file = install(CLIENTS["zed"], home)
    gone = file.without(["sandbox"])
    assert gone.content is None
    file.path.write_bytes(b'{"theme": "mine"}')
    with pytest.raises(ConfigError, match="was changed by another program meanwhile"):
        file.write(gone)
    assert file.path.read_bytes() == b'{"theme": "mine"}'


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff"])
def test_a_backup_that_somebody_spoilt_is_made_anew(home: Path, content: bytes) -> None:
    client = CLIENTS["gemini"]
    path = lay(client, home, existing(client))
    file = install(client, home)
    file.backup.write_bytes(content)
    uninstall(client, home)
    assert path.read_bytes() == existing(client)
    assert file.backup.read_bytes() == file.content


def test_a_link_in_the_backups_place_is_not_followed(client: Client, home: Path) -> None:
    path = lay(client, home, existing(client))
    victim = home / "victim"
    victim.write_text("mine")
    client_file(client, home, {}).backup.symlink_to(victim)
    assert "a symbolic link, which is not followed here" in refused(client, home)
    assert victim.read_text() == "mine"
    assert path.read_bytes() == existing(client)


def test_a_read_only_file_is_not_replaced_whoever_asks(client: Client, home: Path) -> None:
    path = lay(client, home, existing(client))
    path.chmod(0o444)
    assert "is read-only. Nothing was written." in refused(client, home)
    assert path.read_bytes() == existing(client)
    assert stat.S_IMODE(path.stat().st_mode) == 0o444


def test_a_file_with_a_second_name_is_not_torn_from_it(home: Path) -> None:
    path = lay(CLIENTS["zed"], home, existing(CLIENTS["zed"]))
    (home / "other").hardlink_to(path)
    assert "has other names (hard links)" in refused(CLIENTS["zed"], home)
    assert path.samefile(home / "other")


@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_what_is_no_regular_file_is_refused_at_once(home: Path, kind: str) -> None:
    path = CLIENTS["cursor"].files(home, {})[0]
    path.parent.mkdir(parents=True)
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    assert "not a regular file" in refused(CLIENTS["cursor"], home)


def test_a_huge_file_is_changed_and_a_larger_one_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = CLIENTS["claude-code"]
    history = [{"display": f'question {n} with "quotes" // and {{braces}}', "n": n} for n in range(20_000)]
    before = json.dumps({"projects": {"/p": {"history": history}}, "mcpServers": {}}, indent=2).encode()
    path = lay(client, home, before)
    assert install(client, home).ours == {"sandbox": LAUNCH}
    uninstall(client, home)
    assert path.read_bytes() == before
    monkeypatch.setattr("mcp_sandbox.clients.file.MAX_FILE_SIZE", 2**20)
    assert "larger than 1024 KiB" in refused(client, home)
    assert path.read_bytes() == before


def test_mode_and_owner_stay(home: Path) -> None:
    path = lay(CLIENTS["codex"], home, existing(CLIENTS["codex"]))
    path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(path, 1234, 5678)
    was = path.stat()
    file = install(CLIENTS["codex"], home)
    now = path.stat()
    assert (now.st_mode, now.st_uid, now.st_gid) == (was.st_mode, was.st_uid, was.st_gid)
    assert now.st_ino != was.st_ino
    assert stat.S_IMODE(file.backup.stat().st_mode) == 0o600


def test_a_new_file_is_the_users_alone(home: Path) -> None:
    path = install(CLIENTS["gemini"], home).path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_changed_since_it_was_read_is_left_as_it_is_now(client: Client, home: Path) -> None:
    path = lay(client, home, existing(client))
    file = client_file(client, home, {})
    new = file.having("sandbox", LAUNCH)
    meanwhile = existing(client) + b"\n"
    path.write_bytes(meanwhile)
    with pytest.raises(ConfigError, match="was changed by another program meanwhile"):
        file.write(new)
    assert path.read_bytes() == meanwhile
    assert everything_in(path.parent) == {path: meanwhile}


def test_a_folder_that_cannot_be_written_is_said(client: Client, home: Path) -> None:
    # A file where the folder should be: root may write to any folder.
    path = client.files(home, {})[0]
    home.mkdir()
    if path.parent == home:
        home.rmdir()
        home.write_text("")
    else:
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        path.parent.write_text("")
    assert "Not a directory" in refused(client, home)


@pytest.fixture
def open_home() -> Iterator[Path]:
    """A home that also somebody without privileges can reach."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_folder_that_may_not_be_looked_into_is_said(client: Client, open_home: Path) -> None:
    path = lay(client, open_home, existing(client))
    path.parent.chmod(0o000)
    with unprivileged():
        error = refused(client, open_home)
    path.parent.chmod(0o755)
    assert "cannot be read: Permission denied" in error or "cannot be written: Permission denied" in error
    assert everything_in(path.parent)[path] == existing(client)


def test_a_folder_that_may_not_be_written_is_said_and_the_file_stays(client: Client, open_home: Path) -> None:
    path = lay(client, open_home, existing(client))
    path.chmod(0o666)
    path.parent.chmod(0o555)
    with unprivileged():
        assert "cannot be written: Permission denied. Nothing was written." in refused(client, open_home)
    assert everything_in(path.parent) == {path: existing(client)}


@pytest.mark.skipif(
    os.geteuid() != 0, reason="being another user than a file's owner takes root: `sudo ./scripts/test`"
)
def test_a_file_of_somebody_else_is_not_taken_from_them(open_home: Path) -> None:
    client = CLIENTS["zed"]
    path = lay(client, open_home, existing(client))
    path.chmod(0o666)
    path.parent.chmod(0o777)
    with unprivileged():
        assert "cannot be written: Operation not permitted. Nothing was written." in refused(
            client, open_home
        )
    assert everything_in(path.parent) == {path: existing(client)}
    assert path.stat().st_uid == 0


def test_a_second_backup_is_made_once_others_have_changed_the_file(home: Path) -> None:
    client = CLIENTS["gemini"]
    path = lay(client, home, existing(client))
    first = install(client, home)
    path.write_bytes(path.read_bytes().replace(b'"GitHub"', b'"Dracula"'))
    changed = path.read_bytes()
    install(client, home, "sandbox-b")
    assert first.backup.read_bytes() == changed


def test_an_uninstall_that_cannot_bring_back_the_bytes_keeps_the_backup(home: Path) -> None:
    client = CLIENTS["gemini"]
    path = lay(client, home, existing(client))
    file = install(client, home)
    path.write_bytes(path.read_bytes().replace(b'"GitHub"', b'"Dracula"'))
    changed = path.read_bytes()
    uninstall(client, home)
    assert file.backup.read_bytes() == changed
    assert path.read_bytes() == existing(client).replace(b'"GitHub"', b'"Dracula"')


def test_opencode_2_gets_the_entry_where_it_has_its_servers(home: Path) -> None:
    client = CLIENTS["opencode"]
    before = (CONFIGS / "opencode-2.json").read_bytes()
    path = lay(client, home, before)
    file = install(client, home)
    assert file.servers == ("mcp", "servers")
    assert set(file.data["mcp"]) == {"servers"}
    assert set(file.data["mcp"]["servers"]) == {"my-server", "sandbox"}
    uninstall(client, home)
    assert path.read_bytes() == before


def test_opencodes_other_file_is_used_where_it_is_the_one(home: Path) -> None:
    folder = home / ".config/opencode"
    folder.mkdir(parents=True)
    (folder / "opencode.jsonc").write_bytes(existing(CLIENTS["opencode"]))
    assert install(CLIENTS["opencode"], home).path.name == "opencode.jsonc"
    assert not (folder / "opencode.json").exists()


def test_a_comment_of_what_follows_an_entry_stays_when_the_entry_goes(home: Path) -> None:
    client = CLIENTS["codex"]
    path = lay(client, home, existing(client))
    install(client, home)
    path.write_bytes(path.read_bytes() + b'\n# My fast one\n[profiles.fast]\nmodel = "small"\n')
    uninstall(client, home)
    assert path.read_bytes() == existing(client) + b'\n# My fast one\n[profiles.fast]\nmodel = "small"\n'


def test_reading_clients_takes_no_other_package_than_ours_and_tomlkit() -> None:
    """`install` must start fast: neither Docker's SDK nor MCP's belong to a text edit."""
    program = (
        "import sys, mcp_sandbox.clients.file\n"
        "print({name.partition('.')[0] for name in sys.modules} & {'docker', 'mcp', 'anyio', 'rich'})"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert shown.stdout == "set()\n"
