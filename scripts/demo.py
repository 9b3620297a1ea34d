"""What a model would do and what a hostile one would try, through a real MCP client, printed for a person.

With `--record`, what was printed becomes docs/demo.svg and the transcript in the README.
"""

from __future__ import annotations

import os
import random
import re
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import anyio
from mcp import Client, StdioServerParameters
from rich.console import Console
from rich.markup import escape, render
from rich.padding import Padding
from rich.syntax import Syntax

CONFIGURATION = """\
[audit]
path = "{folder}/record"

[defaults]
memory = "256MiB"
scratch_size = "64MiB"
tmp_size = "32MiB"
shm_size = "32MiB"
"""


class Scene(NamedTuple):
    """One call and what to look for."""

    title: str
    tool: str
    code: str
    timeout_seconds: float = 10.0


SCENES = (
    Scene(
        "Ten log files, one question: how many lines are errors?",
        "execute_python",
        """
        import glob
        files = sorted(glob.glob("*.txt"))
        lines = [line for name in files for line in open(name)]
        errors = [line for line in lines if " ERROR " in line]
        print(f"{len(errors)} of {len(lines)} lines in {len(files)} files are errors")
        """,
    ),
    Scene("A loop that never ends", "execute_python", "while True: pass", 2.0),
    Scene("A memory hog", "execute_python", 'data = []\nwhile True: data.append("x" * 10_000_000)'),
    Scene("A fork bomb", "execute_shell", "f() { f | f & }; f; sleep 1; exit 1", 5.0),
    Scene("A write to /etc", "execute_shell", "echo 'root::0:0::/:/bin/sh' >> /etc/passwd"),
    Scene(
        "A write to the person's files",
        "execute_python",
        'open("/workspace/day-1.txt", "w").write("gone")',
    ),
    Scene(
        "A connection to the outside",
        "execute_python",
        'import socket\nsocket.create_connection(("198.51.100.7", 443), timeout=3)',
    ),
)


async def main() -> None:
    """Run every scene."""
    recording = "--record" in sys.argv[1:]
    console = Console(highlight=False, record=recording, width=100 if recording else None)
    told: list[str] = []
    with tempfile.TemporaryDirectory(prefix="mcp-sandbox-demo-") as folder:
        logs = Path(folder, "logs")
        write_logs(logs)
        configuration = Path(folder, "config.toml")
        configuration.write_text(CONFIGURATION.format(folder=folder), encoding="utf-8")
        server = StdioServerParameters(
            command=str(Path(sys.executable).with_name("mcp-sandbox")),
            args=["serve", "--config", str(configuration), "--workspace", str(logs)],
            env=dict(os.environ),
        )
        async with Client(server) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            console.print(f"An MCP client is connected; the server has [bold]{', '.join(tools)}[/bold].\n")
            for scene in SCENES:
                told += await play(client, scene, console)
    console.print("Every sandbox is gone. See docs/security.md for what else is tried, and fails.")
    if recording:
        keep(console.export_svg(title="mcp-sandbox"), told)


def keep(picture: str, told: list[str]) -> None:
    """Put what was seen into the documents."""
    from generate import ROOT, part  # beside this file

    # A picture in a README may load nothing, and needs no fonts from elsewhere.
    (ROOT / "docs" / "demo.svg").write_text(
        re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL), "utf-8"
    )
    transcript = "\n".join(["```text", *told, "```"]) + "\n"
    (ROOT / "README.md").write_text(
        part("README.md", "transcript", transcript, by="scripts/demo --record"), "utf-8"
    )


async def play(client: Client, scene: Scene, console: Console) -> list[str]:
    """Make one call, show it, and return it in two lines."""
    python = scene.tool == "execute_python"
    code = textwrap.dedent(scene.code).strip()
    console.print(f"[bold cyan]▸ {scene.title}[/bold cyan]")
    shown = Syntax(code, "python" if python else "bash", background_color="default", word_wrap=True)
    console.print(Padding(shown, (0, 4)))
    result = await client.call_tool(
        scene.tool, {"code" if python else "command": code, "timeout_seconds": scene.timeout_seconds}
    )
    if result.is_error or result.structured_content is None:
        console.print(Padding(f"[red]{escape(result.content[0].text)}[/red]", (0, 4)))  # type: ignore[union-attr]
        sys.exit(1)
    outcome = result.structured_content
    end = f"[bold]{verdict(outcome)}[/bold]  {escape(last_line(outcome))}"
    console.print(Padding(end, (0, 4)))
    console.print()
    return [f"▸ {scene.title}", f"    {render(end).plain}"]


def verdict(outcome: dict[str, Any]) -> str:
    """Say in a word or two how it ended."""
    seconds = (outcome["duration_ms"] or 0) / 1000
    match outcome["status"]:
        case "exited" if outcome["exit_code"] == 0:
            return f"[green]✓ {seconds:.2f} s[/green]"
        case "exited":
            return f"[yellow]✗ exit code {outcome['exit_code']}[/yellow]"
        case status:
            return f"[yellow]✗ {status.replace('_', ' ')} after {seconds:.1f} s[/yellow]"


def last_line(outcome: dict[str, Any]) -> str:
    """Return the line that tells the most: the answer, or the last words of the error."""
    lines = (outcome["stdout"] or outcome["stderr"] or outcome["hint"]).strip().splitlines()
    return lines[-1] if lines else ""


def write_logs(folder: Path) -> None:
    """Write ten days of a service's log."""
    folder.mkdir()
    dice = random.Random(7)  # noqa: S311  # the same files each time, so that the answer can be checked
    for day in range(1, 11):
        levels = dice.choices(("INFO", "WARNING", "ERROR"), weights=(90, 7, 3), k=500)
        lines = [
            f"2026-03-{day:02} {n // 60:02}:{n % 60:02} {level} request {n}" for n, level in enumerate(levels)
        ]
        folder.joinpath(f"day-{day}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    anyio.run(main)
