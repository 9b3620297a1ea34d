"""The table of clients as a document: `python -m mcp_sandbox.clients.reference` writes docs/clients.md anew."""

from __future__ import annotations

from pathlib import Path

from mcp_sandbox.clients.table import CLIENTS

BEGIN, END = "<!-- clients: written by mcp_sandbox.clients.reference -->\n", "<!-- end of clients -->\n"


def clients_markdown() -> str:
    """Return every client, and where its file lies on each system, as a Markdown table."""
    lines = ["| client | | Linux | macOS | Windows |", "|---|---|---|---|---|"]
    for client in CLIENTS.values():
        places = (client.linux, client.macos, client.windows)
        cells = [" or ".join(f"`{path}`" for path in paths) for paths in places]
        lines.append(f"| `{client.name}` | {client.title} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _write() -> None:
    docs = Path(__file__).parents[2] / "docs" / "clients.md"
    before, rest = docs.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    docs.write_text(before + BEGIN + clients_markdown() + END + after, encoding="utf-8")


if __name__ == "__main__":
    _write()
