"""`mcp-sandbox shell` as a person at a terminal meets it: a run like any other, and their terminal comes back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from mcp_sandbox.app import running
from mcp_sandbox.audit.store import AuditStore
from mcp_sandbox.model import ExecutionRequest
from mcp_sandbox.workspace import load_configuration
from tests.clients.raw import ANSWER_SECONDS, configuration_file, environment
from tests.conftest import RUNTIMES
from tests.engine.sandboxes import SLEEP, none_left, runs, sleeping
from tests.engine_proxy import EngineProxy
from tests.person import at_a_terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from docker import APIClient

    from tests.person import Person

pytestmark = pytest.mark.engine

COMMAND = str(Path(sys.executable).with_name("mcp-sandbox"))
SECRET = "hunter2-hunter2"
PROMPT = r"[$#] "


@pytest.fixture
def configuration(engine_host: str, tmp_path: Path) -> Path:
    small = {"memory": "128MiB", "scratch_size": "16MiB", "tmp_size": "16MiB", "shm_size": "16MiB"}
    file = configuration_file(tmp_path, engine_host, **small)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "seen.txt").write_text("seen")
    file.write_text(
        file.read_text()
        + f'\n[workspaces.w]\npath = "{tmp_path}/folder"\n[workspaces.g]\nruntime = "runsc"\n'
        + f'[workspaces.w.secrets]\nAPI_KEY = {{ command = ["echo", "{SECRET}"] }}\n'
    )
    return file


@contextmanager
def shell(configuration: Path, *arguments: str, **size: int) -> Iterator[Person]:
    command = [COMMAND, "shell", "--config", str(configuration), *arguments]
    with at_a_terminal(command, environment(configuration.parent) | {"TERM": "xterm"}, **size) as person:
        yield person


async def last_run(configuration: Path) -> tuple[Any, bytes]:
    """Return the newest run of the record, and what it showed."""
    store = AuditStore(configuration.parent / "audit")
    run = (await runs(configuration.parent))[0]
    return await store.get(run.run_id), await store.content(run.run_id, "stdout") or b""


@pytest.mark.parametrize("workspace", ["w", "g"] if "runsc" in RUNTIMES else ["w"])
async def test_it_is_a_terminal_and_a_recorded_run(configuration: Path, workspace: str) -> None:
    with shell(configuration, "--workspace", workspace, rows=40, columns=100) as person:
        person.sees("a sandbox of the workspace .*300 s at most")
        person.sees(PROMPT)
        assert person.is_raw
        person.type("tty; stty size; echo $TERM $PPID; test -t 0 -a -t 1 -a -t 2 && pwd\n")
        person.sees(r"/dev/pts/0\r\n40 100\r\nxterm 1\r\n/scratch\r\n")
        person.resizes(33, 111)
        # A size and what is typed go to the sandbox by separate ways.
        person.type("until stty size | grep '33 111'; do sleep 0.1; done; trap 'stty size' WINCH\n")
        person.sees("33 111\r\n.*" + PROMPT)
        if workspace == "w":  # under gVisor, from 2023 on
            resize_unasked(person)
            stop_and_interrupt(person)
        person.type("read -rs typed; echo got:${typed:0:2}; echo made > made.txt; exit 7\n")
        person.sees("exit 7\r\n")
        person.type("pässword\n")
        person.sees("got:pä\r\n")
        assert person.leaves() == 7
        assert person.is_as_before
        assert b"made made.txt" in person.unseen
    run, shown = await last_run(configuration)
    opening, closing = run.opening["data"], run.closing["data"]
    assert (opening["origin"], opening["language"], opening["workspace"]) == ("shell", "shell", workspace)
    assert closing["facts"]["terminal"] == "40x100"
    assert (closing["result"]["status"], closing["result"]["exit_code"]) == ("exited", 7)
    assert closing["result"]["stdout_bytes"] == len(shown)
    assert b"33 111" in shown
    assert b"pass" not in shown  # what is not shown is not recorded


def resize_unasked(person: Person) -> None:
    person.resizes(50, 60)
    person.sees("50 60\r\n")


def stop_and_interrupt(person: Person) -> None:
    person.type(f"sh -c 'echo o''n; exec {SLEEP}'; echo $?\n")
    person.sees(r"\ron\r\n")
    person.type("\x1a")
    person.sees(rf"Stopped .*{SLEEP}.*{PROMPT}")
    person.type("fg\n")
    person.sees(rf"{SLEEP}'\r\n")
    person.type("\x03")
    person.sees(PROMPT)


async def test_its_restrictions_are_those_of_every_run(
    configuration: Path, engine_client: APIClient, tmp_path: Path
) -> None:
    async def of_the_one_that_sleeps() -> tuple[Any, Any]:
        (container,) = await sleeping(engine_client, tmp_path)
        told = engine_client.inspect_container(container)
        del told["Config"]["Labels"]  # which server's it is
        told["Config"]["Env"].sort()  # Podman tells it in any order
        return told["HostConfig"], told["Config"]

    with shell(configuration, "--workspace", "w") as person:
        person.sees(PROMPT)
        person.type(f"{SLEEP}\n")
        of_shell = await of_the_one_that_sleeps()
        person.type("\x03")
        person.sees(PROMPT)
        person.type("\x04")
        person.leaves()
    await none_left(engine_client, tmp_path)
    command = [COMMAND, "run", "--config", str(configuration), "--workspace", "w", "--shell", SLEEP]
    async with await anyio.open_process(command, env=environment(tmp_path)) as process:
        assert await of_the_one_that_sleeps() == of_shell
        process.terminate()
        with anyio.fail_after(ANSWER_SECONDS):
            await process.wait()


async def test_it_stands_where_a_recorded_run_ran(configuration: Path) -> None:
    narrow = load_configuration(
        config_file=configuration, workspace="w", environ={}, cwd=configuration.parent
    )
    policy = narrow.policy.model_copy(update={"pids_limit": 77})
    request = ExecutionRequest(
        language="python",
        code="print(open('data/a.csv').read(), input(), open('seen.txt').read())",
        stdin=b"in\n",
        files=(("data/a.csv", b"1,2"),),
    )
    async with running(narrow.model_copy(update={"policy": policy}), os.environ, origin="cli") as executor:
        then = await executor.execute(request)
    assert then.stdout == "1,2 in seen\n"
    (configuration.parent / "folder" / "main.py").write_text("print('another')")

    with shell(configuration, "--run", "last") as person:
        person.sees("not as then: main.py")  # appeared since
        person.sees(PROMPT)
        person.type("python3 _main.py < stdin; python3 main.py; cat /sys/fs/cgroup/{,pids/}pids.max\n")
        person.sees(r"\r1,2 in seen\r\nanother\r\n")
        person.sees(r"\n77\r\n")
        person.type("exit 0\n")
        assert person.leaves() == 0
        assert b"made" not in person.screen  # what it was given is not what it made
    run, _ = await last_run(configuration)
    assert run.closing["data"]["facts"]["of_run"] == then.run_id
    assert run.closing["data"]["facts"]["image"] == run.policy["image"]

    command = [COMMAND, "runs", "replay", "--config", str(configuration), "--force", "last"]
    with anyio.fail_after(ANSWER_SECONDS):
        replayed = await anyio.run_process(command, env=environment(configuration.parent), check=False)
    assert replayed.returncode == 125
    assert b"what was typed there is not recorded" in replayed.stderr


def press_the_way_out(person: Person, _: APIClient) -> None:
    person.type("\x1d\x1d\x1d")


def close_the_window(person: Person, _: APIClient) -> None:
    person.closes_the_window()


def terminate(person: Person, _: APIClient) -> None:
    person.process.terminate()


def kill_the_sandbox(_: Person, client: APIClient) -> None:
    for container in client.containers(filters={"label": "io.mcp-sandbox.version"}):
        client.kill(container["Id"])


ENDINGS: dict[str, tuple[Callable[[Person, APIClient], None], int, str, bytes]] = {
    "the way out": (press_the_way_out, 125, "cancelled", b"cancelled"),
    "a signal": (terminate, 125, "cancelled", b"cancelled"),
    "the window closed": (close_the_window, 125, "cancelled", b""),
    "the sandbox killed": (kill_the_sandbox, 125, "lost", b"was killed"),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_however_it_ends_the_terminal_is_given_back_and_the_run_recorded(
    ending: str, configuration: Path, engine_client: APIClient, tmp_path: Path
) -> None:
    end, status, recorded, told = ENDINGS[ending]
    with shell(configuration) as person:
        person.sees(PROMPT)
        person.type("printf '\\e[?1049h\\e[?1000h\\e[31m'; trap '' HUP TERM INT; stty raw -echo; sleep 61\n")
        person.sees(rb"\x1b\[\?1049h\x1b\[\?1000h\x1b\[31m")
        await sleeping(engine_client, tmp_path)
        end(person, engine_client)
        if ending == "the window closed":
            person.process.wait(ANSWER_SECONDS)
        else:
            assert person.leaves() == status
            person.sees(rb"\x1b\[\?1049l.*\x1b\[\?1000l.*\x1b\[m")
            assert told in person.unseen
            assert b"Traceback" not in person.screen
            assert person.is_as_before
    await none_left(engine_client, tmp_path)
    run, shown = await last_run(configuration)
    assert run.closing["data"]["result"]["status"] == recorded
    assert b"\x1b[?1049h" in shown


async def test_its_sandbox_goes_by_itself_when_the_command_is_killed(
    configuration: Path, engine_client: APIClient, tmp_path: Path
) -> None:
    with shell(configuration) as person:
        person.sees(PROMPT)
        person.type("trap '' HUP TERM INT; sleep 61\n")
        await sleeping(engine_client, tmp_path)
        person.process.kill()
        person.process.wait(ANSWER_SECONDS)
        await none_left(engine_client, tmp_path)


async def test_an_engine_that_goes_away_does_not_keep_the_terminal(
    configuration: Path, engine_host: str, tmp_path: Path
) -> None:
    def sit(ready: Callable[[], None]) -> None:
        with shell(configuration) as person:
            person.sees(PROMPT)
            ready()
            person.sees("ended early")
            assert person.leaves() == 125
            assert person.is_as_before

    async with EngineProxy(engine_host, tmp_path / "engine.sock").listening() as proxy:
        configuration.write_text(configuration.read_text().replace(engine_host, proxy.host))

        async def cut() -> None:
            await anyio.wait_all_tasks_blocked()  # what is cut while it receives fails in asyncio itself
            proxy.cut()

        await anyio.to_thread.run_sync(sit, lambda: anyio.from_thread.run(cut))
    run, _ = await last_run(configuration)
    assert run.closing["data"]["result"]["status"] == "lost"


async def test_it_ends_at_its_deadline(configuration: Path) -> None:
    with shell(configuration, "--timeout", "2") as person:
        person.sees("for 2 s at most")
        person.sees(PROMPT)
        person.type("trap '' HUP TERM INT; while :; do :; done\n")
        assert person.leaves() == 124
        assert person.is_as_before
    run, _ = await last_run(configuration)
    assert run.closing["data"]["result"]["status"] == "timed_out"


async def test_a_secret_is_on_neither_screen_nor_record_and_no_sequence_reaches_past_the_screen(
    configuration: Path,
) -> None:
    with shell(configuration, "--workspace", "w") as person:
        person.sees(PROMPT)
        person.type("echo ${#API_KEY} ${API_KEY%2}2; printf '\\e]52;c;eA==\\a\\e[21t\\005%s\\n' done\n")
        person.sees(rb"\r15 \[secret API_KEY\]\r\ndone\r\n")
        assert b"]52" not in person.screen.replace(b"'\\e]52", b"")
        # Echoed at once, though it could be the beginning of the secret.
        person.type(SECRET[:4])
        person.sees(SECRET[:4])
        person.type("\x15exit\n")
        assert person.leaves() == 0
        assert SECRET.encode() not in person.screen
        assert b"\x05" not in person.screen
    _, shown = await last_run(configuration)
    assert b"[secret API_KEY]" in shown
    for file in (configuration.parent / "audit").rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file


async def test_a_flood_is_shown_whole_bounded_on_record_and_stoppable(configuration: Path) -> None:
    with shell(configuration) as person:
        person.sees(PROMPT)
        person.type("head -c 1500000 /dev/zero | tr '\\0' x; echo; echo done; yes\n")
        person.sees(r"\r\ndone\r\n")
        assert person.screen.count(b"x") >= 1_500_000
        person.sees("y\r\ny\r\n")
        person.type("\x03")
        person.sees(r"\^C\r\n.*" + PROMPT)
        person.type("exit\n")
        person.leaves()
    run, shown = await last_run(configuration)
    assert 500_000 < len(shown) < 1_100_000  # output_limit
    assert run.closing["data"]["result"]["stdout_bytes"] > 1_500_000
    assert shown.endswith(b"exit\r\n")


def test_without_a_terminal_it_says_what_to_use(configuration: Path) -> None:
    for stdin in (b"", b"exit\n"):
        ended = subprocess.run(
            [COMMAND, "shell", "--config", configuration],
            input=stdin,
            capture_output=True,
            env=environment(configuration.parent),
            timeout=ANSWER_SECONDS,
        )
        assert ended.returncode == 2
        assert b"must be a terminal" in ended.stderr


def test_what_keeps_it_from_starting_leaves_the_terminal_alone(tmp_path: Path) -> None:
    for arguments, said in (
        (["--timeout", "9999"], "refused: .*timeout_seconds"),
        (["--run", "nonesuch"], "No run on the record"),
        ([], "engine_unreachable"),
    ):
        file = configuration_file(tmp_path, f"unix://{tmp_path}/no.sock")
        with shell(file, *arguments) as person:
            person.sees(said)
            assert person.leaves() == 125
            assert person.is_as_before
            assert b"Traceback" not in person.screen


def test_ctrl_c_before_it_starts_ends_it(engine_host: str, tmp_path: Path) -> None:
    file = configuration_file(tmp_path, engine_host)
    with shell(file) as person:
        person.sees("at most")
        person.type("\x03")
        assert person.leaves() in (1, -signal.SIGINT, 128 + signal.SIGINT)  # as far as it had come
        assert person.is_as_before
        assert b"Traceback" not in person.screen
