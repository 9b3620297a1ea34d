"""How long the run record takes, on a store that already holds many runs.

    python benchmarks/audit.py --runs 1000000 --folder /tmp/record-benchmark

fills a store (many runs to a transaction; about 5 GB for a million), then measures opening and closing as
the executor does them, and lists and searches. The folder is deleted at the end unless `--keep` is given.
"""

from __future__ import annotations

import random
import shutil
import statistics
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click

from mcp_sandbox.audit.folder import Folder
from mcp_sandbox.audit.journal import Journal
from mcp_sandbox.audit.query import reading
from mcp_sandbox.audit.record import Content, Opening
from mcp_sandbox.audit.store import AuditStore
from mcp_sandbox.audit.verify import verify
from mcp_sandbox.model import Artifact, Client, ExecutionResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BATCH = 20_000

SECONDS_BETWEEN_RUNS = 30

LINES = (
    "import {module}",
    "from {module} import {name} as {other}",
    "{name} = pd.read_csv('{other}.csv')",
    "for {name} in range(len({other})):",
    "    print({name}, {other}[{number}])",
    "{name} = [{other} * {number} for {other} in {name} if {other} > {number}]",
    "plt.plot({name}, label='{other}')",
    "plt.savefig('{name}.png', dpi={number})",
    "with open('{name}.json') as f:",
    "    {other} = json.load(f)['{name}']",
    "assert {name}.shape == ({number}, {number})",
    "print(f'{{{name}:.2f}} of {{{other}}}')",
)
MODULES = (
    "numpy",
    "pandas",
    "json",
    "re",
    "math",
    "matplotlib.pyplot",
    "collections",
    "itertools",
    "datetime",
)
NAMES = (
    "data",
    "frame",
    "total",
    "values",
    "rows",
    "result",
    "price",
    "count",
    "text",
    "model",
    "items",
    "x",
    "y",
)

POLICY = {"network": "none", "memory": 512 << 20, "pids": 64, "timeout": 60}


def program(chance: random.Random) -> str:
    """Return some Python."""
    lines = []
    for line in chance.choices(LINES, k=12):
        number = chance.randrange(1_000_000) if chance.random() < 0.2 else chance.randrange(10)
        name, other = chance.choices(NAMES, k=2)
        lines.append(line.format(module=chance.choice(MODULES), name=name, other=other, number=number))
    return "\n".join(lines)


def opening(chance: random.Random) -> Opening:
    """Return the opening of some run; a few workspaces have most of the runs."""
    return Opening(
        language="python",
        code=program(chance),
        timeout_seconds=30,
        client=Client(name="desk", version="1.0"),
        session_id="0123456789abcdef",
        workspace=f"project-{min(int(chance.expovariate(0.3)), 30)}",
        policy=POLICY,
        environment=("LANG",),
    )


def result(chance: random.Random, run_id: str) -> ExecutionResult:
    """Return the result of some run; one in three has an artifact."""
    plot = Artifact(
        path=f"out/plot{chance.randrange(1000)}.png" if chance.random() < 0.5 else "plot.png",
        size=20_000,
        mime_type="image/png",
        sha256=f"{chance.getrandbits(256):064x}",
        uri="artifact://plot",
    )
    return ExecutionResult(
        run_id=run_id,
        status="exited" if chance.random() < 0.97 else "timed_out",
        exit_code=int(chance.random() < 0.2),
        stdout="",
        stderr="",
        stdout_bytes=200,
        stderr_bytes=0,
        truncated=False,
        duration_ms=int(chance.expovariate(1 / 800)),
        artifacts=(plot,) if chance.random() < 0.3 else (),
    )


def fill(folder: Folder, runs: int, chance: random.Random) -> None:
    """Write a store of so many runs, the last of them a moment ago."""
    clock = iter(range(int(time.time()) - runs * SECONDS_BETWEEN_RUNS, 1 << 40, SECONDS_BETWEEN_RUNS))
    now = [float(next(clock))]
    journal = Journal(folder, lambda: now[0])
    journal.begin(5)
    with click.progressbar(length=runs, label="filling") as bar:
        for first in range(0, runs, BATCH):
            with journal.writing(5) as (connection, chain):
                connection.execute("PRAGMA cache_size = -200000")  # so big a transaction would spill
                for _ in range(min(BATCH, runs - first)):
                    now[0] = float(next(clock))
                    asked = opening(chance)
                    code = [Content.of("code", asked.code.encode())]
                    number = journal._append_first(connection, chain, "opening", asked, {}, code)
                    ended = result(chance, "")
                    output = f"{chance.random()} {chance.choice(NAMES)}\n".encode() * 8
                    closing = {
                        "status": ended.status,
                        "error": None,
                        "result": ended.model_dump(mode="json", exclude={"stdout", "stderr"}),
                        "facts": {
                            "image_id": f"sha256:{'ab' * 32}",
                            "runtime": "runc",
                            "sandbox": "mcp-sandbox-1",
                        },
                        "elapsed_ms": ended.duration_ms,
                    }
                    contents = [Content.of("stdout", output), Content.of("stderr", b"")]
                    journal._append_closing(connection, chain, number, closing, contents)
            bar.update(min(BATCH, runs - first))
    journal.end(5)


async def measure_runs(folder: Path, count: int, chance: random.Random) -> tuple[list[float], list[float]]:
    """Return how long each opening and each closing took, in seconds."""
    openings, closings = [], []
    store = AuditStore(folder)
    await store.open()
    for _ in range(count):
        asked = opening(chance)
        started = time.perf_counter()
        async with store.entry(asked) as entry:
            openings.append(time.perf_counter() - started)
            entry.finish(result(chance, entry.run_id), stdout=b"42\n" * 60, stderr=b"")
            started = time.perf_counter()
        closings.append(time.perf_counter() - started)
    await store.aclose()
    return openings, closings


def questions() -> dict[str, dict[str, object]]:
    """Return what is asked of the list, by its name."""
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    return {
        "newest": {},
        "one workspace": {"workspace": "project-0"},
        "a rare workspace": {"workspace": "project-25"},
        "one status": {"status": "timed_out"},
        "workspace and status": {"workspace": "project-3", "status": "timed_out"},
        "a status that no run has": {"status": "lost"},
        "the last hour": {"since": hour_ago},
        "code that is everywhere": {"code_contains": "import"},
        "a statement": {"code_contains": "plt.savefig('price.png'"},
        "a rare number": {"code_contains": "123456"},
        "code that is nowhere": {"code_contains": "subprocess.Popen"},
        "common code in a rare workspace": {"code_contains": "import", "workspace": "project-25"},
        "a rare number in the last hour": {"code_contains": "123456", "since": hour_ago},
        "artifact by name": {"artifact": "plot.png"},
        "artifact by path": {"artifact": "out/plot7.png"},
        "artifact by hash": {"artifact": "ab" * 32},
        "artifact in a rare workspace": {"artifact": "plot.png", "workspace": "project-25"},
        "two lines": {"code_contains": "for data in range(len(data)):\n    print(data, data[1])"},
        "common lines in a rare order": {"code_contains": "import json\nimport json\nimport json"},
        # All triples are in nearly every program, so that each program is read.
        "worst: what only seems to be everywhere": {"code_contains": "import import import"},
    }


def line(name: str, seconds: Sequence[float], more: str = "") -> str:
    """Return one line of the report."""
    milliseconds = sorted(one * 1000 for one in seconds)
    p95 = milliseconds[int(len(milliseconds) * 0.95)]
    return f"{name:38} {statistics.median(milliseconds):8.2f} {p95:8.2f} {milliseconds[-1]:8.2f}  {more}"


def timed(action: Callable[[], object], repeat: int) -> tuple[list[float], object]:
    """Return how long an action took each time, in seconds, and its last value."""
    took, value = [], None
    for _ in range(repeat):
        started = time.perf_counter()
        value = action()
        took.append(time.perf_counter() - started)
    return took, value


@click.command(help=__doc__)
@click.option("--runs", default=100_000, show_default=True, help="Runs in the store; each is two records.")
@click.option("--folder", default="/tmp/record-benchmark", show_default=True, type=click.Path(path_type=Path))
@click.option(
    "--keep", is_flag=True, help="Do not delete the folder; a folder that is there is not filled again."
)
@click.option("--verify/--no-verify", "with_verify", default=False, help="Also verify the whole store.")
def main(runs: int, folder: Path, keep: bool, with_verify: bool) -> None:
    """Fill, measure, report."""
    chance = random.Random(1)
    store = Folder(folder)
    if not store.database.exists():
        fill(store, runs, chance)
    click.echo(f"{store.size() / 1e9:.2f} GB\n\n{'milliseconds':38} {'median':>8} {'95 %':>8} {'most':>8}")
    openings, closings = anyio.run(partial(measure_runs, folder, 500, chance))
    click.echo(line("opening", openings))
    click.echo(line("closing", closings))
    click.echo(line("opening and closing", [sum(both) for both in zip(openings, closings, strict=True)]))
    with reading(store) as reader:
        for name, question in questions().items():
            took, found = timed(partial(reader.list, **question), 10)  # type: ignore[arg-type]
            click.echo(line(name, took, f"{len(found)} found"))  # type: ignore[arg-type]
        took, _ = timed(reader.stats, 1)
        click.echo(line("stats", took))
    if with_verify:
        took, verification = timed(partial(verify, store), 1)
        click.echo(line("verify", took, f"{verification.records} records, ok={verification.ok}"))  # type: ignore[attr-defined]
    if not keep:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
