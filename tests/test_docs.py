"""What the documents say can be typed, can be typed."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

from mcp_sandbox.clients.file import ClientFile
from mcp_sandbox.clients.table import CLIENTS, Client

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = [
    REPOSITORY / "README.md",
    REPOSITORY / "CONTRIBUTING.md",
    *sorted((REPOSITORY / "docs").glob("*.md")),
]
COMMAND = str(Path(sys.executable).with_name("mcp-sandbox"))
SLOW = (
    "mcp-sandbox image build",
    "mcp-sandbox doctor",
    "mcp-sandbox serve",
    "pip install",
    "./scripts/",
    "scripts/",
)
"""What takes minutes, or serves: that it exists is checked; that it works, elsewhere."""


class Block(NamedTuple):
    page: str
    language: str
    text: str


def blocks(*languages: str) -> list[Block]:
    found = []
    for page in PAGES:
        if page.exists():
            for language, text in re.findall(
                r"^```(\w+)\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE
            ):
                if language in languages:
                    found.append(Block(page.name, language, text))
    return found


def commands() -> list[str]:
    lines = [line.strip() for block in blocks("bash", "sh", "console") for line in block.text.splitlines()]
    return sorted({line.removeprefix("$ ") for line in lines if line and not line.startswith("#")})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home folder that has what the documents' workspaces name."""
    for name in ("reports", "data", "Downloads"):
        (tmp_path / name).mkdir()
    return tmp_path


def test_pages_link_only_to_what_is_there() -> None:
    for page in PAGES:
        for target in re.findall(
            r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text("utf-8") if page.exists() else ""
        ):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_what_is_written_from_the_code_is_up_to_date() -> None:
    checked = subprocess.run(
        [REPOSITORY / "scripts" / "generate", "--check"], capture_output=True, text=True, timeout=60
    )
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("block", blocks("json"), ids=lambda block: block.page)
def test_json_in_the_documents_is_json(block: Block) -> None:
    json.loads(block.text)


@pytest.mark.parametrize(
    "block",
    [block for block in blocks("toml") if "[mcp_servers" not in block.text],
    ids=lambda block: block.page,
)
def test_toml_in_the_documents_is_a_configuration(block: Block, home: Path) -> None:
    for folder in re.findall(r'(?:path|source) = "~/([^"]+)"', block.text):
        (home / folder).mkdir(parents=True, exist_ok=True)
    file = home / "config.toml"
    file.write_text(block.text, "utf-8")
    checked = subprocess.run(
        [COMMAND, "config", "check", str(file)],
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("line", [line for line in commands() if line.startswith(SLOW)])
def test_slow_commands_of_the_documents_exist(line: str) -> None:
    words = shlex.split(line)
    if "scripts/" in words[0]:
        assert os.access(REPOSITORY / words[0], os.X_OK)
    elif words[0] == "mcp-sandbox":
        subcommands = [word for word in words[1:3] if not word.startswith("-")]
        shown = subprocess.run([COMMAND, *subcommands, "--help"], capture_output=True, text=True, timeout=60)
        assert shown.returncode == 0, shown.stderr
    else:
        assert words[:2] == ["pip", "install"]


@pytest.mark.engine
@pytest.mark.parametrize(
    "line", [line for line in commands() if line.startswith("mcp-sandbox ") and not line.startswith(SLOW)]
)
def test_commands_of_the_documents_work(line: str, engine_host: str, home: Path) -> None:
    configuration = home / "config.toml"
    configuration.write_text(
        f'[audit]\npath = "{home}/record"\n[defaults]\nimage = "mcp-sandbox/minimal"\n'
        f'[workspaces.reports]\npath = "{home}/reports"\n'
        # With an upstream proxy, names are not looked up here.
        '[workspaces.papers.egress]\nallow = ["api.example.com", "http://intranet.example:8080"]\n'
        'upstream_proxy = "http://proxy.example:3128"\n',
        "utf-8",
    )
    environment = {
        "HOME": str(home),
        "PATH": f"{Path(COMMAND).parent}:{os.environ['PATH']}",
        "DOCKER_HOST": engine_host,
        "MCP_SANDBOX_CONFIG": str(configuration),
    }
    # The record must have a run before it can be looked at.
    subprocess.run([COMMAND, "run", "-c", "print(1)"], env=environment, cwd=home, check=True, timeout=60)
    ran = subprocess.run(
        line,
        shell=True,
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
        input="\n\n\n",  # to what is asked, the answer that is suggested
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("client", CLIENTS.values(), ids=lambda client: client.name)
def test_what_the_readme_says_of_a_client_is_what_the_installer_reads(client: Client) -> None:
    page = (REPOSITORY / "README.md").read_text("utf-8")
    section = page.split(f"<summary>{client.title}</summary>")[1].split("</details>")[0]
    [snippet] = re.findall(r"^```\w+\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    file = ClientFile(client, Path(client.linux[0]), snippet.encode())
    assert list(file.ours) == ["sandbox"]
    launch = file.ours["sandbox"]
    assert launch.args == ("serve", "--workspace", "/absolute/path/to/your/folder")
    assert f"`{client.linux[0]}`" in section


def test_the_picture_is_of_the_runs_that_the_demo_makes_and_loads_nothing() -> None:
    text = (REPOSITORY / "docs" / "demo.svg").read_text("utf-8")
    picture = ElementTree.fromstring(text)
    shown = " ".join("".join(line.itertext()) for line in picture.iter("{http://www.w3.org/2000/svg}text"))
    titles = re.findall(r'Scene\(\s*"([^"]+)"', (REPOSITORY / "scripts" / "demo.py").read_text("utf-8"))
    assert len(titles) > 5
    transcript = (REPOSITORY / "README.md").read_text("utf-8").split("<!-- transcript")[1]
    for title in titles:
        assert f"▸ {title}" in shown.replace("\xa0", " ")
        assert f"▸ {title}\n" in transcript
    assert "<script" not in text
    assert not re.findall(r"(?:href|url)\W+https?:", text)


@pytest.mark.timeout(300)
def test_the_documents_build_as_a_site_in_which_no_link_leads_nowhere() -> None:
    built = subprocess.run([REPOSITORY / "scripts" / "site"], capture_output=True, text=True, timeout=240)
    assert built.returncode == 0, built.stdout + built.stderr
    site = REPOSITORY / "dist" / "site"
    for page in PAGES[2:]:
        assert (site / page.stem / "index.html").exists()
    first = (site / "index.html").read_text("utf-8")
    loaded = re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"?(https?:[^\" >]+)", first)
    assert loaded == []
