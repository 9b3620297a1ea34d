"""What programs see of a person's folders: all that they need, nothing that they should not, and none of it changes."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from mcp_sandbox.app import running
from mcp_sandbox.errors import EngineUnsafe, RequestRefused
from mcp_sandbox.model import ExecutionRequest, ExecutionResult
from tests.attacks.conftest import product_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import docker

    from mcp_sandbox.config.policy import Configuration

    Configure = Callable[..., Configuration]

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

TRANSFERS = ("mount", "copy")
SECRET = "hunter2"
MIB = 1 << 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A person's folder; the person is whoever programs run as."""
    folder = tmp_path / "papers"
    folder.mkdir(mode=0o755)
    return folder


def give(folder: Path, uid: int = 1000) -> None:
    """Make a folder and all in it the property of the user that programs run as."""
    for path in (folder, *folder.rglob("*")):
        os.lchown(path, uid, uid)


def shell(command: str) -> ExecutionRequest:
    return ExecutionRequest(language="shell", code=command)


def python(code: str) -> ExecutionRequest:
    return ExecutionRequest(language="python", code=code)


async def run_once(configuration: Configuration, request: ExecutionRequest) -> ExecutionResult:
    async with running(configuration, os.environ, origin="cli") as executor:
        return await executor.execute(request)


# What is seen


@pytest.mark.parametrize("transfer", TRANSFERS)
async def test_ten_files_are_counted_by_their_own_names(
    configure: Configure, folder: Path, runtime: str, transfer: str
) -> None:
    for number in range(10):
        lines = ("error\n" if line % 10 == number else "fine\n" for line in range(100))
        (folder / f"log{number}.txt").write_text("".join(lines))
    result = await run_once(
        configure(path=str(folder), runtime=runtime, workspace_transfer=transfer),
        python(
            "import glob\n"
            "names = sorted(glob.glob('*.txt'))\n"
            "lines = [line for name in names for line in open(name)]\n"
            "print(len(names), names[0], sum('error' in line for line in lines), len(lines))\n"
            "open('summary.txt', 'w').write('done')\n"
        ),
    )
    assert result.stdout == "10 log0.txt 100 1000\n", result
    assert [artifact.path for artifact in result.artifacts] == ["summary.txt"]
    assert len(list(folder.iterdir())) == 10


@pytest.mark.parametrize("transfer", TRANSFERS)
async def test_nothing_that_a_program_does_changes_the_folder(
    configure: Configure, folder: Path, runtime: str, transfer: str, engine_host: str
) -> None:
    (folder / "sub").mkdir()
    (folder / "sub/deep.txt").write_text("deep")
    (folder / "kept.txt").write_text("as it was")
    give(folder)
    attempts = (
        "echo x > /workspace/new",
        "echo x > kept.txt",
        "echo x >> /workspace/kept.txt",
        "echo x > sub/new",
        "rm /workspace/kept.txt",
        "mv /workspace/kept.txt /workspace/moved.txt",
        "mkdir /workspace/made",
        "ln -s / /workspace/link",
        "rm -r /workspace/sub",
        "truncate -s 0 /workspace/sub/deep.txt",
        "mount -o remount,rw /workspace",
    )
    result = await run_once(
        configure(path=str(folder), runtime=runtime, workspace_transfer=transfer),
        shell(
            "; ".join(f"({attempt}) 2>/dev/null && echo 'did: {attempt}'" for attempt in attempts)
            + "; cat kept.txt"
        ),
    )
    # On Podman the outermost folder of a copy is open to the program.
    if (transfer, product_of(engine_host)) != ("copy", "Podman"):
        assert result.stdout == "as it was", result
    assert sorted(path.name for path in folder.rglob("*")) == ["deep.txt", "kept.txt", "sub"]
    assert (folder / "kept.txt").read_text() == "as it was"


@pytest.mark.parametrize("transfer", TRANSFERS)
async def test_a_file_that_only_its_owner_may_read_is_read(
    configure: Configure, folder: Path, transfer: str
) -> None:
    (folder / "private.txt").write_text("mine")
    (folder / "private.txt").chmod(0o600)
    (folder / "drawer").mkdir(mode=0o700)
    (folder / "drawer/note.txt").write_text("also mine")
    give(folder)
    result = await run_once(
        configure(path=str(folder), user="1000:1000", workspace_transfer=transfer),
        shell("cat private.txt drawer/note.txt"),
    )
    assert result.stdout == "minealso mine", result


@pytest.mark.parametrize("transfer", TRANSFERS)
async def test_a_program_of_the_folders_own_is_not_mistaken_for_the_one_that_runs(
    configure: Configure, folder: Path, transfer: str
) -> None:
    (folder / "main.py").write_text("print('the folder')")
    (folder / "helpers.py").write_text("NAME = 'helpers'")
    result = await run_once(
        configure(path=str(folder), workspace_transfer=transfer),
        python("import helpers; print(helpers.NAME, open('main.py').read())"),
    )
    assert result.stdout == "helpers print('the folder')\n", result
    assert result.artifacts == ()


async def test_links_within_the_folder_work_and_those_that_leave_it_lead_nowhere(
    configure: Configure, folder: Path, runtime: str, tmp_path: Path
) -> None:
    (tmp_path / "outside.txt").write_text(SECRET)
    (folder / "real.txt").write_text("real")
    (folder / "inner").symlink_to("real.txt")
    (folder / "outer").symlink_to(tmp_path / "outside.txt")
    (folder / "up").symlink_to("../outside.txt")
    (folder / "circle").symlink_to("circle")
    result = await run_once(
        configure(path=str(folder), runtime=runtime), shell("cat inner; cat outer up circle 2>/dev/null")
    )
    assert result.stdout == "real", result


async def test_a_folder_that_another_is_mounted_in_shows_nothing_of_that(
    configure: Configure, folder: Path, tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting one folder in another takes root: `sudo ./scripts/test`")
    other = tmp_path / "other"
    other.mkdir()
    (other / ".env").write_text(SECRET)
    (folder / "point").mkdir()
    await anyio.run_process(["mount", "--bind", str(other), str(folder / "point")])
    try:
        result = await run_once(configure(path=str(folder)), shell("ls -A point; cat point/.env"))
    finally:
        await anyio.run_process(["umount", str(folder / "point")])
    assert SECRET not in result.stdout + result.stderr
    assert result.stdout == ""


# More folders


async def test_more_folders_are_seen_where_they_are_said_to_be(
    configure: Configure, folder: Path, runtime: str, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    (models / "weights.bin").write_text("weights")
    (models / ".env").write_text(SECRET)
    result = await run_once(
        configure(
            path=str(folder), runtime=runtime, mounts=[{"source": str(models), "target": "/data/models"}]
        ),
        shell("cd /data/models && cat weights.bin .env; echo x > new; echo x > .env; ls -A | wc -l"),
    )
    assert result.stdout == "weights2\n", result
    assert sorted(path.name for path in models.iterdir()) == [".env", "weights.bin"]


async def test_a_folder_that_is_gone_is_told_and_nothing_runs(configure: Configure, folder: Path) -> None:
    configuration = configure(path=str(folder))
    folder.rmdir()
    with pytest.raises(RequestRefused, match="cannot be used: no such file or directory"):
        await run_once(configuration, shell("true"))
    assert not folder.exists()  # as an engine would make it that is told to bind it


@pytest.mark.parametrize("name", ["a:ro b c=$(id)'\\ü", 'a,rw "b"'])
async def test_a_folder_may_have_any_name_that_the_engine_reads_as_it_is(
    configure: Configure, tmp_path: Path, runtime: str, engine_host: str, name: str
) -> None:
    folder = tmp_path / name
    folder.mkdir(mode=0o755)
    (folder / "seen.txt").write_text("seen")
    run = run_once(configure(path=str(folder), runtime=runtime), shell("cat seen.txt; touch new"))
    if "," in name and product_of(engine_host) == "Podman":
        with pytest.raises(EngineUnsafe, match="has a comma, a quotation mark or a line break"):
            await run
    else:
        assert (await run).stdout == "seen"
    assert [path.name for path in folder.iterdir()] == ["seen.txt"]


# What is hidden


def fill_with_secrets(folder: Path) -> list[str]:
    """Put the same secret into every kind of file that is hidden by default; return their names."""
    names = [
        ".env",
        ".env.local",
        "prod.env",
        "id_rsa",
        "id_ed25519.bak",
        "server.pem",
        "SERVER.KEY",
        "deep/er/cert.p12",
        ".ssh/anything",
        ".aws/credentials",
        ".gnupg/private-keys-v1.d/x",
        ".docker/config.json",
        ".netrc",
        ".npmrc",
        ".pypirc",
        "credentials-prod.json",
        "vault.kdbx",
        "terraform.tfstate",
        ".git-credentials",
        "app/.streamlit/secrets.toml",
    ]
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SECRET)
    return names


READ_ALL = "cat $(find -L . /workspace -type f ! -name main.py 2>/dev/null) 2>/dev/null"


@pytest.mark.parametrize("transfer", TRANSFERS)
async def test_what_holds_credentials_is_hidden_and_the_rest_is_not(
    configure: Configure, folder: Path, runtime: str, transfer: str
) -> None:
    names = fill_with_secrets(folder)
    for name in ("data.csv", ".docker/other.json", "environment.txt", "keys.txt", "monkey"):
        (folder / name).write_text("shown ")
    give(folder)
    result = await run_once(
        configure(path=str(folder), runtime=runtime, workspace_transfer=transfer),
        python(
            "import os\n"
            "read = [open(os.path.join(top, name), errors='replace').read()\n"
            "        for top, _, names in os.walk('/workspace') for name in names]\n"
            "print(sorted(set(read)), read.count('shown '))\n"
        ),
    )
    assert SECRET not in result.stdout + result.stderr
    assert result.stdout == ("['', 'shown '] 5\n" if transfer == "mount" else "['shown '] 5\n"), result
    assert all((folder / name).read_text() == SECRET for name in names)


async def test_a_name_however_odd_is_hidden(configure: Configure, folder: Path, runtime: str) -> None:
    for name in (
        ".env:ro",
        ".env é 🙂",
        ".env\\b",
        ".env ",
        ".env;$(id)",
        "-.pem",
    ):
        (folder / name).write_text(SECRET)
    (folder / " sub:dir").mkdir()
    (folder / " sub:dir/.env").write_text(SECRET)
    result = await run_once(
        configure(path=str(folder), runtime=runtime),
        shell("find /workspace -type f | wc -l; find /workspace -type f -exec cat {} +"),
    )
    assert result.stdout == "7\n", result


@pytest.mark.parametrize("name", [".env,z", '.env "q"', ".env\nx", " sub:dir,/.env"])
async def test_a_name_that_breaks_a_line_of_values_is_hidden_or_nothing_runs(
    configure: Configure, folder: Path, runtime: str, engine_host: str, name: str
) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(SECRET)
    run = run_once(
        configure(path=str(folder), runtime=runtime), shell("find /workspace -type f -exec cat {} +")
    )
    if product_of(engine_host) == "Podman":
        with pytest.raises(EngineUnsafe, match="has a comma, a quotation mark or a line break"):
            await run
    else:
        assert (await run).stdout == ""


@pytest.mark.parametrize("transfer", TRANSFERS)
async def test_no_other_name_of_a_hidden_file_shows_it(
    configure: Configure, folder: Path, transfer: str
) -> None:
    (folder / "conf").mkdir()
    (folder / "conf/production").write_text(SECRET)
    (folder / ".env").symlink_to("conf/production")  # it is the name that says what the file is
    (folder / "id_rsa").write_text(SECRET)
    (folder / "notes.txt").symlink_to("id_rsa")
    (folder / "harmless").mkdir()
    os.link(folder / "id_rsa", folder / "harmless/hard.txt")
    (folder / "drawer").mkdir()
    (folder / "drawer/x").write_text(SECRET)
    (folder / ".ssh").symlink_to("drawer")
    result = await run_once(configure(path=str(folder), workspace_transfer=transfer), shell(READ_ALL))
    assert SECRET not in result.stdout, result


@pytest.mark.parametrize("transfer", TRANSFERS)
async def test_a_repositorys_settings_are_hidden_only_where_they_hold_a_credential(
    configure: Configure, folder: Path, transfer: str
) -> None:
    for name, url in (("a", f"https://me:{SECRET}@example.com/a.git"), ("b", "git@example.com:b.git")):
        (folder / name / ".git").mkdir(parents=True)
        (folder / name / ".git/config").write_text(f'[remote "origin"]\n\turl = {url}\n')
    result = await run_once(
        configure(path=str(folder), workspace_transfer=transfer, workspace_copy_ignore=[]),
        shell("cat a/.git/config b/.git/config 2>/dev/null"),
    )
    assert result.stdout == '[remote "origin"]\n\turl = git@example.com:b.git\n', result


async def test_a_person_can_hide_more_and_show_what_is_harmless(configure: Configure, folder: Path) -> None:
    for name in ("customers.csv", "public.pem", "private.pem", "plain.txt"):
        (folder / name).write_text(name)
    result = await run_once(
        configure(path=str(folder), mask=["*.pem", "customers.csv"], unsafe_unmask=["public.pem"]),
        shell("cat *.csv *.pem *.txt"),
    )
    assert result.stdout == "public.pemplain.txt", result


async def test_what_a_ready_sandbox_shows_is_hidden_as_soon_as_it_must_be(
    configure: Configure, folder: Path, engine_client: docker.APIClient
) -> None:
    (folder / ".env").write_text("")
    async with running(configure(path=str(folder)), os.environ, origin="mcp") as executor:

        async def read() -> str:
            result = await executor.execute(shell("cat .env later.env conf/x/.env renamed 2>/dev/null"))
            return result.stdout

        assert await read() == ""
        # In the way of an editor: the mask of a ready sandbox goes with the file that it covers.
        (folder / "unfinished").write_text(SECRET)
        (folder / "unfinished").rename(folder / ".env")
        assert await read() == ""
        (folder / "later.env").write_text(SECRET)
        assert await read() == ""
        (folder / "conf/x").mkdir(parents=True)
        (folder / "conf/x/.env").write_text(SECRET)
        assert await read() == ""
        (folder / ".env").rename(folder / "renamed")
        assert await read() == SECRET  # it is no longer called what is hidden
        (folder / "later.env").unlink()
        assert await read() == SECRET


async def test_a_folder_that_took_anothers_place_is_the_one_that_is_seen(
    configure: Configure, folder: Path
) -> None:
    (folder / "which").write_text("old")
    async with running(configure(path=str(folder)), os.environ, origin="mcp") as executor:
        assert (await executor.execute(shell("cat which"))).stdout == "old"
        folder.rename(folder.with_name("moved"))
        folder.mkdir()
        (folder / "which").write_text("new")
        assert (await executor.execute(shell("cat which"))).stdout == "new"


async def test_too_many_files_to_hide_refuse_the_run_and_say_what_helps(
    configure: Configure, folder: Path
) -> None:
    for number in range(1001):
        (folder / f"{number}.pem").write_text(SECRET)
    with pytest.raises(RequestRefused, match="1,001 files and folders") as caught:
        await run_once(configure(path=str(folder)), shell("cat *.pem"))
    assert "`mask`" in caught.value.next_step
    assert "`unsafe_unmask`" in caught.value.next_step


async def test_as_many_as_can_be_hidden_are(configure: Configure, folder: Path, runtime: str) -> None:
    for number in range(1000 if runtime == "runc" else 200):
        (folder / f"{number}.pem").write_text(SECRET)
    (folder / "seen.txt").write_text("seen")
    result = await run_once(configure(path=str(folder), runtime=runtime), shell("cat *.pem seen.txt"))
    assert result.stdout == "seen", result


async def test_the_record_tells_what_was_hidden(configure: Configure, folder: Path) -> None:
    (folder / ".env").write_text(SECRET)
    async with running(configure(path=str(folder)), os.environ, origin="cli") as executor:
        result = await executor.execute(shell("true"))
        record = await executor.record.get(result.run_id)  # type: ignore[attr-defined]
    assert record.closing["data"]["facts"]["hidden"] == ["/workspace/.env"]


# Copies


async def test_a_copy_leaves_out_what_nobody_needs_and_what_is_no_file(
    configure: Configure, folder: Path
) -> None:
    for name in (
        "kept.txt",
        ".git/objects/x",
        "web/node_modules/y",
        "__pycache__/z",
        ".venv/bin/w",
        "sub/a/b.txt",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "link").symlink_to("/etc/passwd")
    os.mkfifo(folder / "fifo")
    async with running(
        configure(path=str(folder), workspace_transfer="copy"), os.environ, origin="cli"
    ) as executor:
        result = await executor.execute(shell("cd /workspace && find . ! -type d | sort"))
        record = await executor.record.get(result.run_id)  # type: ignore[attr-defined]
    assert result.stdout == "./kept.txt\n./sub/a/b.txt\n", result
    facts = record.closing["data"]["facts"]
    assert (facts["copied"], facts["not_copied"]) == (2, 2)


@pytest.mark.parametrize(
    ("files", "size", "more"),
    [(1, 2 * MIB, {"workspace_copy_limit": MIB}), (200, 1, {"inodes": 256})],
    ids=["size", "count"],
)
async def test_too_much_to_copy_refuses_the_run_and_says_what_helps(
    configure: Configure, folder: Path, files: int, size: int, more: dict[str, int]
) -> None:
    for number in range(files):
        with (folder / f"{number}.bin").open("wb") as file:
            file.truncate(size)
    with pytest.raises(RequestRefused, match="too large to be copied") as caught:
        await run_once(configure(path=str(folder), workspace_transfer="copy", **more), shell("true"))
    assert "workspace_copy_ignore" in caught.value.next_step


async def test_an_engine_elsewhere_gets_a_copy_unasked(
    configure: Configure, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "data.txt").write_text("came along")
    monkeypatch.setattr("mcp_sandbox.engines.docker.address.Address.local", False)
    result = await run_once(
        configure(path=str(folder)), shell("cat data.txt; grep -c '/workspace tmpfs' /proc/mounts")
    )
    assert result.stdout == "came along1\n", result


async def test_names_of_any_bytes_are_copied(configure: Configure, folder: Path) -> None:
    for name in (b"a\nb", b"\xff\xfe", "日本語".encode(), b"-rf", b" "):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(name)
    result = await run_once(
        configure(path=str(folder), workspace_transfer="copy"),
        python(
            "import os\n"
            "names = os.listdir(b'/workspace')\n"
            "print(len(names), all(open(name, 'rb').read() == name for name in names))\n"
        ),
    )
    assert result.stdout == "5 True\n", result


async def test_every_byte_of_a_large_folder_is_copied(
    configure: Configure, folder: Path, record_property: Callable[[str, object], None]
) -> None:
    content = os.urandom(MIB)
    for number in range(50):
        (folder / f"{number}.bin").write_bytes(content[number:] + content[:number])
    import hashlib

    expected = hashlib.sha256(b"".join(p.read_bytes() for p in sorted(folder.iterdir()))).hexdigest()
    began = time.monotonic()
    result = await run_once(
        configure(path=str(folder), workspace_transfer="copy"),
        python(
            "import hashlib, os\n"
            "h = hashlib.sha256()\n"
            "for name in sorted(os.listdir('/workspace')): h.update(open(name, 'rb').read())\n"
            "print(h.hexdigest())\n"
        ),
    )
    record_property("seconds for 50 MiB, start of the sandbox included", round(time.monotonic() - began, 2))
    assert result.stdout == expected + "\n", result


# What it costs


@pytest.fixture
def hundred_thousand_files() -> Iterator[Path]:
    """A large folder, in memory: on a busy disk it takes minutes to make."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        root = Path(folder)
        root.chmod(0o755)
        for number in range(100):
            (root / str(number)).mkdir()
            for file in range(1000):
                (root / str(number) / str(file)).touch()
        yield root


async def test_a_hundred_thousand_files_cost_a_call_no_second(
    configure: Configure, folder: Path, hundred_thousand_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp_sandbox.masks.SETTLED_NS", 0)  # as if the folder had last changed a while ago

    async def best(folder: Path) -> float:
        async with running(configure(path=str(folder), ready=0), os.environ, origin="mcp") as executor:
            taken = []
            for _ in range(5):
                began = time.monotonic()
                assert (await executor.execute(shell("ls | wc -l"))).exit_code == 0
                taken.append(time.monotonic() - began)
        return min(taken)

    # A call with an empty folder takes a fraction of a second, most of it the start of its sandbox.
    assert await best(hundred_thousand_files) < 4 * await best(folder)
