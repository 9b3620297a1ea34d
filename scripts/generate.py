"""Write the parts of the documents that come from the code, or with `--check` tell which are out of date."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_sandbox.errors import SandboxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent


def part(page: str, name: str, text: str) -> str:
    """Return a page with its part of this name, between two comments, replaced."""
    begin, end = f"<!-- {name}: written by scripts/generate -->\n", f"<!-- end of {name} -->\n"
    before, _, rest = (ROOT / page).read_text("utf-8").partition(begin)
    _, _, after = rest.partition(end)
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


WRITTEN: dict[str, Callable[[], str]] = {
    "docs/errors.md": errors,
}
"""Each file that is written, whole or in part, and what it should be."""


def main() -> int:
    """Write what is out of date, or say it."""
    stale = {
        name: text for name, make in WRITTEN.items() if (ROOT / name).read_text("utf-8") != (text := make())
    }
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
