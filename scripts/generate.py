"""Write the parts of the documents that come from the code, or with `--check` tell which are out of date."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from packages import ENTRY, links, manifest, registry  # beside this file

from mcp_sandbox.app import running
from mcp_sandbox.clients.launch import Launch
from mcp_sandbox.clients.table import CLIENTS
from mcp_sandbox.config.policy import Configuration, Policy
from mcp_sandbox.config.reference import BEGIN, END, example_toml, keys_markdown
from mcp_sandbox.config.settings import AuditSettings, EngineSettings
from mcp_sandbox.errors import SandboxError
from mcp_sandbox.server import create_server
from mcp_sandbox.server.flight import Flights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mcp.types import Prompt, Tool

ROOT = Path(__file__).resolve().parent.parent
BY_HAND = Launch("/absolute/path/to/mcp-sandbox", ("serve", "--workspace", "/absolute/path/to/your/folder"))


def part(page: str, name: str, text: str, *, by: str = "scripts/generate") -> str:
    """Return a page with its part of this name, between two comments, replaced."""
    return _replaced((ROOT / page).read_text("utf-8"), name, text, by)


def _replaced(page: str, name: str, text: str, by: str = "scripts/generate") -> str:
    begin, end = f"<!-- {name}: written by {by} -->\n", f"<!-- end of {name} -->\n"
    before, began, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not began or not ended:
        raise SystemExit(f"there is no place for {name}: {begin}{end}")
    return f"{before}{begin}{text}{end}{after}"


def errors() -> str:
    """Return docs/errors.md: what each code means, and what there is to do."""
    rows = ["| code | what happened | what you do | what the model does |", "|---|---|---|---|"]
    rows += [
        f"| `{kind.code}` | {sentence(kind.__doc__)} | {kind.default_next_step} "
        f"| {kind.for_model or kind.default_next_step} |"
        for kind in (SandboxError, *below(SandboxError))
    ]
    return part("docs/errors.md", "codes", "\n".join(rows) + "\n")


def below(kind: type[SandboxError]) -> Iterator[type[SandboxError]]:
    """Yield every class of errors that is derived from this one."""
    for derived in kind.__subclasses__():
        yield derived
        yield from below(derived)


def sentence(text: str | None) -> str:
    """Return a text in one line."""
    return " ".join((text or "").split())


@cache
def offered() -> tuple[Sequence[Tool], Sequence[Prompt]]:
    """Return what a server under the default policy, with a workspace, offers its clients."""

    async def ask(folder: str) -> tuple[Sequence[Tool], Sequence[Prompt]]:
        configuration = Configuration(
            engine=EngineSettings(host=f"unix://{folder}/none.sock"),
            audit=AuditSettings(path=f"{folder}/audit"),
            policy=Policy(ready=0, path=folder),
        )
        async with (
            running(configuration, os.environ, origin="cli") as executor,
            Flights(executor, reply_within_seconds=30) as flights,
        ):
            server = create_server(flights)
            return await server.list_tools(), await server.list_prompts()

    with tempfile.TemporaryDirectory() as folder:
        return anyio.run(ask, folder)


def tools() -> str:
    """Return docs/tools.md: every tool with its arguments and results, and every prompt."""
    return part("docs/tools.md", "tools", "\n".join(_tool_lines()))


def _tool_lines() -> Iterator[str]:
    listed, prompts = offered()
    for tool in listed:
        yield f"## `{tool.name}`\n"
        yield "\n>\n".join(f"> {line}" for line in (tool.description or "").splitlines()) + "\n"
        yield "| argument | type | default | meaning |\n|---|---|---|---|"
        required = tool.input_schema.get("required", [])
        for name, schema in tool.input_schema["properties"].items():
            default = "required" if name in required else f"`{json.dumps(schema.get('default'))}`"
            yield f"| `{name}` | {_type(schema)} | {default} | {sentence(schema.get('description'))} |"
        hints = tool.annotations.model_dump(exclude={"title"}, exclude_none=True) if tool.annotations else {}
        told = ", ".join(
            f"{name.removesuffix('_hint').replace('_', '-')}: {str(is_so).lower()}"
            for name, is_so in hints.items()
        )
        yield f"\nHints for clients: {told}.\n"
    yield "## Results\n"
    for title, name in (("`read_artifact`", "read_artifact"), ("All other tools", "execute_python")):
        yield f"{title}:\n\n| field | type | meaning |\n|---|---|---|"
        [schema] = [tool.output_schema for tool in listed if tool.name == name]
        for field, inner in (schema or {})["properties"].items():
            yield f"| `{field}` | {_type(inner)} | {sentence(inner.get('description'))} |"
        yield ""
    yield "## Prompts\n"
    yield "| prompt | arguments | what it asks for |\n|---|---|---|"
    for prompt in prompts:
        takes = ", ".join(
            f"`{each.name}`" if each.required else f"`{each.name}` (may be left out)"
            for each in prompt.arguments or ()
        )
        yield f"| `{prompt.name}` | {takes} | {sentence(prompt.description)} |"
    yield ""


def _type(schema: dict[str, Any]) -> str:
    """Return what a value may be, in words."""
    if "anyOf" in schema:
        return " or ".join(_type(inner) for inner in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    kind = {"integer": "number", "object": "table", "array": "list"}.get(schema["type"], schema["type"])
    if "minimum" in schema and "maximum" in schema:
        return f"{kind}, {schema['minimum']:g} to {schema['maximum']:g}"
    return str(kind)


def readme() -> str:
    """Return the README: how each client is told by hand, and the links that do it."""
    page = (ROOT / "README.md").read_text("utf-8")
    opened = links()
    page = _replaced(
        page, "links", f"[Add it to VS Code]({opened['vscode']}) · [add it to Cursor]({opened['cursor']})\n"
    )
    return _replaced(page, "clients", "\n".join(_client_sections()))


def _client_sections() -> Iterator[str]:
    for client in CLIENTS.values():
        language = "toml" if client.format == "toml" else "json"
        yield f'<details markdown="1">\n<summary>{client.title}</summary>\n'
        places = [f"`{client.linux[0]}`"]
        places += [f"on macOS `{client.macos[0]}`"] if client.macos != client.linux else []
        yield f"In {', '.join(places)}:\n"
        yield f"```{language}\n{client.snippet(ENTRY, BY_HAND)}```\n"
        yield f"{client.reload}\n\n</details>\n"


def configuration() -> str:
    """Return docs/configuration.md: every key."""
    before, rest = (ROOT / "docs/configuration.md").read_text("utf-8").split(BEGIN)
    return before + BEGIN + keys_markdown() + END + rest.split(END)[1]


WRITTEN: dict[str, Callable[[], str]] = {
    "docs/errors.md": errors,
    "docs/tools.md": tools,
    "docs/configuration.md": configuration,
    "config.example.toml": example_toml,
    "bundle/manifest.json": lambda: manifest(offered()[0]),
    "server.json": registry,
    "README.md": readme,
}
"""Each file that is written, whole or in part, and what it should be."""


def written(name: str) -> str:
    """Return what a file says now; nothing where it is not there yet."""
    path = ROOT / name
    return path.read_text("utf-8") if path.exists() else ""


def main() -> int:
    """Write what is out of date, or say it."""
    stale = {name: text for name, make in WRITTEN.items() if written(name) != (text := make())}
    if "--check" in sys.argv[1:]:
        for name in stale:
            print(f"{name} is out of date: run scripts/generate", file=sys.stderr)
        return 1 if stale else 0
    for name, text in stale.items():
        (ROOT / name).write_text(text, "utf-8")
        print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
