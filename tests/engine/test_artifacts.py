"""Files that programs make come out, whole and checked; what is no plain file stays behind and is told of."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from mcp_sandbox.app import running
from mcp_sandbox.model import ExecutionRequest, ExecutionResult
from tests.clients.raw import configuration_file, environment, serving

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp_sandbox.config.policy import Configuration

    Configure = Callable[..., Configuration]

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

STANDARD = "mcp-sandbox/standard"
MIB = 1 << 20
MCP_SANDBOX = (str(Path(sys.executable).with_name("mcp-sandbox")),)


class Made:
    """A result, with the contents of its files and the reasons of those that stayed behind."""

    def __init__(self, result: ExecutionResult, files: dict[str, bytes]) -> None:
        self.result = result
        self.files = files
        self.skipped = {skipped.path: skipped.reason for skipped in result.artifacts_skipped}


async def make(configuration: Configuration, code: str, **request: object) -> Made:
    """Run a Python program and read back every file that it made."""
    async with running(configuration, os.environ, origin="cli") as executor:
        call = ExecutionRequest.model_validate({"language": "python", "code": code, **request})
        result = await executor.execute(call)
        files = {}
        for artifact in result.artifacts:
            content = await executor.record.content(result.run_id, f"artifact:{artifact.path}")
            assert content is not None
            assert len(content) == artifact.size
            assert hashlib.sha256(content).hexdigest() == artifact.sha256
            files[artifact.path] = content
    return Made(result, files)


# What people make


async def test_a_table_a_plot_and_an_archive_come_out(configure: Configure) -> None:
    made = await make(
        configure(image=STANDARD, timeout_seconds=120),
        "import matplotlib.pyplot as plt, pandas as pd, zipfile\n"
        "df = pd.DataFrame({'city': ['Köln', 'Paris, FR'], 'n': [1, 2]})\n"
        "df.to_csv('out.csv', index=False)\n"
        "df.plot.bar(x='city', y='n')\n"
        "plt.savefig('plot.png')\n"
        "with zipfile.ZipFile('all.zip', 'w') as archive: archive.write('out.csv')\n",
    )
    assert made.result.exit_code == 0, made.result.stderr
    assert sorted(made.files) == ["all.zip", "out.csv", "plot.png"]
    assert made.files["out.csv"].decode() == 'city,n\nKöln,1\n"Paris, FR",2\n'
    assert made.files["plot.png"].startswith(b"\x89PNG\r\n\x1a\n")
    assert zipfile.ZipFile(io.BytesIO(made.files["all.zip"])).read("out.csv") == made.files["out.csv"]
    kinds = {artifact.path: artifact.mime_type for artifact in made.result.artifacts}
    assert kinds == {"all.zip": "application/zip", "out.csv": "text/csv", "plot.png": "image/png"}


async def test_five_hundred_small_files_come_out(configure: Configure, runtime: str) -> None:
    made = await make(
        configure(runtime=runtime),
        "import os\n"
        "for i in range(500):\n"
        "    os.makedirs(f'd{i % 7}', exist_ok=True)\n"
        "    open(f'd{i % 7}/{i}.txt', 'w').write(str(i) * i)\n",
    )
    assert made.files == {f"d{i % 7}/{i}.txt": (str(i) * i).encode() for i in range(500)}
    assert not made.skipped


async def test_a_file_of_200_mebibytes_comes_out_and_can_be_had(engine_host: str, tmp_path: Path) -> None:
    configuration = configuration_file(tmp_path, engine_host, timeout_seconds=120)
    lines = 200 * MIB // 64
    async with serving(configuration) as server:
        answer = await server.call(
            "execute_python",
            seconds=240,
            code="import hashlib\n"
            "digest = hashlib.sha256()\n"
            "with open('big.txt', 'wb') as file:\n"
            f"    for start in range(0, {lines}, 16384):\n"
            "        part = b''.join(b'%063d\\n' % (start + i) for i in range(16384))\n"
            "        file.write(part)\n"
            "        digest.update(part)\n"
            "print(digest.hexdigest())\n",
        )
        run = answer["structuredContent"]
        (link,) = [content for content in answer["content"] if content["type"] == "resource_link"]
        assert (link["name"], link["size"]) == ("big.txt", 200 * MIB)
        (artifact,) = run["artifacts"]
        assert run["stdout"] == artifact["sha256"] + "\n"
        for offset in (0, 150 * MIB, 200 * MIB - 64, 200 * MIB, 10**30):
            part = await server.call(
                "read_artifact", run_id=run["run_id"], path="big.txt", offset=offset, limit=128
            )
            text = part["structuredContent"]["text"]
            assert text == "".join(
                f"{line:063}\n" for line in range(offset // 64, min(offset // 64 + 2, lines))
            )
        found = await server.request("resources/read", {"uri": link["uri"]})
        assert "`mcp-sandbox runs artifacts" in found["error"]["message"]
        refused = await server.call("execute_shell", command="ls", inputs=[f"{run['run_id']}/big.txt"])
        assert refused["isError"]
        assert "at most 8,388,608 are taken" in refused["content"][0]["text"]
    command = [
        *MCP_SANDBOX,
        "runs",
        "artifacts",
        "--config",
        str(configuration),
        "--out",
        str(tmp_path / "out"),
    ]
    with anyio.fail_after(120):
        await anyio.run_process([*command, run["run_id"]], env=environment(tmp_path))
    with (tmp_path / "out/big.txt").open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == artifact["sha256"]


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("raise SystemExit(3)", "exited"),
        ("1 / 0", "exited"),
        ("import os; os.kill(os.getpid(), 9)", "exited"),
        ("while True: pass", "timed_out"),
        ("x = [bytearray(1 << 20) for _ in range(4096)]", "out_of_memory"),
    ],
)
async def test_files_come_out_however_a_program_ends(configure: Configure, end: str, status: str) -> None:
    small = {"memory": 128 * MIB, "scratch_size": 16 * MIB, "tmp_size": 16 * MIB, "shm_size": 16 * MIB}
    made = await make(configure(**small), f"open('made.txt', 'w').write('made')\n{end}\n", timeout_seconds=5)
    assert made.result.status == status
    assert made.files == {"made.txt": b"made"}


async def test_only_what_is_new_or_changed_in_the_working_folder_comes_out(configure: Configure) -> None:
    made = await make(
        configure(),
        "import os, tempfile\n"
        "open('new', 'w').write('new')\n"
        "open('/tmp/elsewhere', 'w').write('x')\n"
        "open('changed', 'a').write('+')\n"
        "os.rename('moved', 'moved-here')\n"
        "os.unlink('removed')\n"
        "os.makedirs('empty/folder')\n"
        "open('unfinished', 'w').write('x'); os.unlink('unfinished')\n"
        "os.makedirs('__pycache__'); open('__pycache__/x.pyc', 'w').write('x')\n",
        files=[(name, b"given") for name in ("same", "changed", "moved", "removed", "sub/same")],
    )
    assert made.files == {"new": b"new", "changed": b"given+", "moved-here": b"given"}
    assert not made.skipped


async def test_the_program_comes_out_only_where_it_rewrote_itself(configure: Configure) -> None:
    made = await make(configure(), "open('main.py', 'a').write('# more')")
    assert made.files == {"main.py": b"open('main.py', 'a').write('# more')# more"}


async def test_a_file_with_two_names_comes_out_twice(configure: Configure) -> None:
    made = await make(configure(), "import os; open('a', 'w').write('x'); os.link('a', 'b')")
    assert made.files == {"a": b"x", "b": b"x"}


async def test_names_in_any_script_come_out_as_they_are(configure: Configure, runtime: str) -> None:
    names = [
        "größe.csv",
        "日本語/한국어.txt",
        "with space",
        "-rf",
        "a'b\"c",
        "%2e%2e",
        "#?&",
        "🙂.txt",
        "x" * 255,
    ]
    made = await make(
        configure(runtime=runtime),
        f"import os\nfor name in {names!r}:\n"
        "    os.makedirs(os.path.dirname(name) or '.', exist_ok=True)\n"
        "    open(name, 'w').write(name)\n",
    )
    assert made.files == {name: name.encode() for name in names}


# What stays behind


async def test_what_is_no_plain_file_stays_behind_one_by_one_and_the_rest_comes(
    configure: Configure, runtime: str
) -> None:
    made = await make(
        configure(runtime=runtime),
        "import os, socket\n"
        "os.symlink('/etc/passwd', 'passwd')\n"
        "os.symlink('/proc/1/environ', 'environ')\n"
        "os.symlink('good', 'link-to-good')\n"
        "os.symlink('/', 'root')\n"
        "os.mkfifo('fifo')\n"
        "socket.socket(socket.AF_UNIX).bind('socket')\n"
        "open('a\\nb', 'w').write('x')\n"
        "open('esc\\x1b[31m', 'w').write('x')\n"
        "open('\\u202egpj.exe', 'w').write('x')\n"
        "open(b'\\xff\\xfe', 'w').write('x')\n"
        "open('back\\\\slash', 'w').write('x')\n"
        "open('Case', 'w').write('first'); open('case', 'w').write('second')\n"
        "open('shut', 'w').write('x'); os.chmod('shut', 0)\n"
        "deep = '/'.join(['d'] * 40); os.makedirs(deep); open(deep + '/deep.txt', 'w').write('deep')\n"
        "open('good', 'w').write('good')\n",
    )
    assert made.result.exit_code == 0, made.result.stderr
    assert made.files == {"Case": b"first", "d/" * 40 + "deep.txt": b"deep", "good": b"good"}
    links = {path for path, reason in made.skipped.items() if "link" in reason}
    assert links == {"passwd", "environ", "link-to-good", "root"}
    assert made.skipped["fifo"] == made.skipped["socket"] == "not a regular file"
    assert made.skipped["case"].startswith("its name differs")
    assert made.skipped["shut"] == "not readable"
    names = {path for path, reason in made.skipped.items() if reason.startswith("its name is no printable")}
    assert len(names) == 5
    assert "a␊b" in names
    assert all(name.isprintable() for name in names)


async def test_folders_without_end_stay_behind_from_some_depth_on(configure: Configure, runtime: str) -> None:
    made = await make(
        configure(runtime=runtime),
        "import os\n"
        "for level in range(200):\n"
        "    open('f', 'w').write(str(level))\n"
        "    os.mkdir('d'); os.chdir('d')\n",
    )
    assert 40 < len(made.files) < 100
    assert "too many folders deep" in made.skipped.values()


async def test_files_beyond_the_limits_stay_behind_and_the_first_ones_come(configure: Configure) -> None:
    limits = {"artifact_count": 5, "artifact_limit": 1 << 20, "artifact_total_limit": 2 << 20}
    made = await make(
        configure(**limits),
        "import os\n"
        "for i in range(3): open(f'a{i}', 'wb').write(b'x' * 900_000)\n"
        "open('b-too-large', 'wb').write(b'x' * 2_000_000)\n"
        "for i in range(10): open(f'c{i}', 'w').write('small')\n",
    )
    assert sorted(made.files) == ["a0", "a1", "c0", "c1", "c2"]
    assert made.skipped["a2"] == "more than all files together may be"
    assert made.skipped["b-too-large"] == "larger than a file may be"
    assert {made.skipped[f"c{i}"] for i in range(3, 10)} == {"more files than may come out"}


async def test_a_file_that_claims_terabytes_costs_nothing(configure: Configure, runtime: str) -> None:
    made = await make(
        configure(runtime=runtime, artifact_limit=10 * MIB),
        "import os, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "open('good', 'w').write('good')\n"
        "for size in (8 << 40, 200 << 20):\n"
        "    with open(f'sparse-{size}', 'wb') as file:\n"
        "        try: file.truncate(size); print('made', size)\n"
        "        except OSError as error: print(error.strerror)\n",
    )
    assert f"made {200 << 20}" in made.result.stdout
    assert made.files["good"] == b"good"
    assert made.skipped[f"sparse-{200 << 20}"] == "larger than a file may be"
    assert sum(map(len, made.files.values())) < 100


async def test_an_archive_that_would_fill_a_disk_is_not_opened(configure: Configure, tmp_path: Path) -> None:
    made = await make(
        configure(),
        "import zipfile\n"
        "with zipfile.ZipFile('bomb.zip', 'w', zipfile.ZIP_DEFLATED) as archive:\n"
        "    archive.writestr('zeros', bytes(100 << 20))\n",
    )
    assert zipfile.ZipFile(io.BytesIO(made.files["bomb.zip"])).getinfo("zeros").file_size == 100 * MIB
    assert sum(path.stat().st_size for path in (tmp_path / "audit").rglob("*") if path.is_file()) < 10 * MIB


async def test_a_hundred_thousand_names_do_not_keep_the_result(configure: Configure) -> None:
    made = await make(
        configure(inodes=200_000, artifact_count=10, timeout_seconds=120),
        "import os\n"
        "os.mkdir('many')\n"
        "for i in range(120_000): os.symlink('x', f'many/{i}')\n"
        "open('a', 'w').write('a')\n",
    )
    assert made.result.exit_code == 0, made.result
    assert made.files == {"a": b"a"}
    assert len(made.skipped) == 100


async def test_no_process_is_left_that_could_change_a_file_while_it_comes_out(
    configure: Configure, runtime: str
) -> None:
    made = await make(
        configure(runtime=runtime),
        "import os, time\n"
        "open('file', 'w').write('x' * 1_000_000)\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    while True:\n"
        "        os.truncate('file', 10); open('file', 'w').write('y' * 1_000_000)\n"
        "time.sleep(0.5)\n",
    )
    assert made.result.status == "exited"
    assert set(made.files) <= {"file"}
    assert not made.skipped


async def test_a_file_for_which_this_machine_has_no_room_is_told_and_the_result_and_the_others_come(
    configure: Configure, tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("a small disk of its own takes root: `sudo ./scripts/test`")
    disk = tmp_path / "audit"
    disk.mkdir(mode=0o700)
    await anyio.run_process(["mount", "-t", "tmpfs", "-o", "size=3m,mode=0700", "tmpfs", str(disk)])
    try:
        made = await make(
            configure(),
            "for name, size in ('a-small', 1000), ('b-large', 8_000_000), ('c-small', 1000):\n"
            "    open(name, 'wb').write(b'x' * size)\n"
            "print('printed')\n",
        )
    finally:
        await anyio.run_process(["umount", str(disk)])
    assert (made.result.status, made.result.stdout) == ("exited", "printed\n")
    assert made.files == {"a-small": b"x" * 1000, "c-small": b"x" * 1000}
    assert made.skipped == {"b-large": "it could not be stored: no space left on device"}


async def test_with_none_wanted_none_come(configure: Configure) -> None:
    made = await make(configure(artifact_count=0), "open('a', 'w').write('a')")
    assert (made.files, made.skipped) == ({}, {})


# What is done with them


async def test_a_file_is_read_in_slices_that_make_it_whole(engine_host: str, tmp_path: Path) -> None:
    text = "".join(f"line {i} é\n" for i in range(3000))
    async with serving(configuration_file(tmp_path, engine_host)) as server:
        run = await server.python(
            "text = ''.join(f'line {i} é\\n' for i in range(3000))\n"
            "open('sub.txt', 'w').write(text); print(text, end='')\n"
        )
        for path in ("sub.txt", "stdout.txt"):
            pieces, offset = [], 0
            while offset is not None:
                answer = await server.call(
                    "read_artifact", run_id=run["run_id"], path=path, offset=offset, limit=10_000
                )
                part = answer["structuredContent"]
                pieces.append(part["text"])
                offset = part["next_offset"]
            assert len(pieces) > 3
            assert "".join(pieces) == text
        assert run["truncated"]
        marker = next(line for line in run["stdout"].splitlines() if line.startswith("[…"))
        assert f'read_artifact(run_id="{run["run_id"]}", path="stdout.txt", offset=' in marker
        offset = int(marker.rpartition("offset=")[2].partition(")")[0])
        answer = await server.call("read_artifact", run_id=run["run_id"], path="stdout.txt", offset=offset)
        assert text.encode()[offset:].decode().startswith(answer["structuredContent"]["text"])
        assert run["stdout"].startswith(text.encode()[:offset].decode())


async def test_files_are_resources_that_a_person_can_open(engine_host: str, tmp_path: Path) -> None:
    async with serving(configuration_file(tmp_path, engine_host)) as server:
        answer = await server.call(
            "execute_python", code="open('grö ße.bin', 'wb').write(bytes(range(256))); print('out')"
        )
        run = answer["structuredContent"]
        (link,) = [content for content in answer["content"] if content["type"] == "resource_link"]
        assert (link["name"], link["size"]) == ("grö ße.bin", 256)
        found = await server.request("resources/read", {"uri": link["uri"]})
        (content,) = found["result"]["contents"]
        assert base64.b64decode(content["blob"]) == bytes(range(256))
        for uri, expected in (
            (f"run://{run['run_id']}/stdout.txt", "out\n"),
            ("run://recent", run["run_id"]),
        ):
            found = await server.request("resources/read", {"uri": uri})
            assert expected in found["result"]["contents"][0]["text"]
        whole = await server.request("resources/read", {"uri": f"run://{run['run_id']}"})
        assert json.loads(whole["result"]["contents"][0]["text"])["run_id"] == run["run_id"]
        for uri in (f"run://{run['run_id']}/artifacts/other", "run://0000000000000/stdout.txt"):
            assert "error" in await server.request("resources/read", {"uri": uri})


def test_a_person_gets_them_into_a_folder_and_loses_nothing_there(engine_host: str, tmp_path: Path) -> None:
    configuration = configuration_file(tmp_path, engine_host)
    command = [*MCP_SANDBOX, "run", "--config", str(configuration)]

    def run(code: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, "--out", tmp_path / "out", "-c", code],
            capture_output=True,
            text=True,
            env=environment(tmp_path),
            timeout=120,
        )

    first = run("import os; os.mkdir('sub'); open('sub/a.txt', 'w').write('first'); os.symlink('/', 'root')")
    assert first.returncode == 0, first.stderr
    assert (tmp_path / "out/sub/a.txt").read_text() == "first"
    assert "made sub/a.txt (text/plain, 5 bytes)" in first.stderr
    assert "not kept: root: a link" in first.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["sub"]
    second = run(
        "import os; os.mkdir('sub'); open('sub/a.txt', 'w').write('second'); open('b', 'w').write('b')"
    )
    assert second.returncode == 125
    assert "sub/a.txt: file exists" in second.stderr
    assert (tmp_path / "out/sub/a.txt").read_text() == "first"
    assert (tmp_path / "out/b").read_text() == "b"
