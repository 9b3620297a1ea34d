"""Who may import whom (`.importlinter`), and that importing does nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LAYERS = """
import sys
from importlinter.cli import lint_imports
sys.exit(lint_imports(config_filename=sys.argv[1], no_cache=True))
"""

IMPORT_EVERYTHING = """
import importlib, pkgutil, sys

FORBIDDEN = {"socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.fork", "os.exec",
    "os.mkdir", "os.remove", "os.rename", "sqlite3.connect"}

def watch(event, arguments):
    written = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
    if event in FORBIDDEN or written:
        print(event, arguments, file=sys.stderr)
        sys.exit(3)

import mcp_sandbox
# None can be imported: one runs the command, the others are programs for a container.
SKIPPED = {
    "mcp_sandbox.__main__", "mcp_sandbox.guest.inside.agent", "mcp_sandbox.dependencies.inside.installer"
}
sys.dont_write_bytecode = True
sys.addaudithook(watch)
count = 0
for module in pkgutil.walk_packages(mcp_sandbox.__path__, "mcp_sandbox."):
    if module.name not in SKIPPED:
        importlib.import_module(module.name)
        count += 1
print(count)
"""


def python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120
    )


def test_the_layers_hold() -> None:
    linted = python(LAYERS, str(ROOT / ".importlinter"))
    assert linted.returncode == 0, linted.stdout


@pytest.mark.parametrize("library", ["docker", "mcp"])
def test_a_library_in_the_wrong_place_would_be_found(library: str, tmp_path: Path) -> None:
    owner = {"docker": "mcp_sandbox.engines.docker", "mcp": "mcp_sandbox.server"}[library]
    contracts = (ROOT / ".importlinter").read_text()
    changed = contracts.replace(f"allowed_importers = {owner}", "allowed_importers = mcp_sandbox.model")
    assert changed != contracts
    (tmp_path / "importlinter").write_text(changed)
    linted = python(LAYERS, str(tmp_path / "importlinter"))
    assert linted.returncode == 1
    assert owner in linted.stdout


def test_importing_connects_to_nothing_writes_nothing_and_starts_nothing() -> None:
    imported = python(IMPORT_EVERYTHING)
    assert imported.returncode == 0, imported.stderr
    assert int(imported.stdout) > 50
