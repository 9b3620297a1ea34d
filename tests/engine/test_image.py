"""The built images: nothing in them helps an attacker, and what they are for works while locked down."""

from __future__ import annotations

import io
import re
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from mcp_sandbox.engines.docker.images import MINIMAL, STANDARD, build_image, list_images
from mcp_sandbox.errors import EngineError, ImageMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import docker

pytestmark = pytest.mark.engine

BOTH = pytest.mark.parametrize("image", [MINIMAL, STANDARD])
SECONDS = 100


@pytest.fixture
def inside(engine_client: docker.APIClient) -> Iterator[Callable[..., str]]:
    """Run a command in an image as a sandbox would; return what it wrote, on both streams."""
    created: list[str] = []

    def run(image: str, *command: str, **host: Any) -> str:
        limits = {"tmpfs": {"/tmp": "", "/scratch": "noexec"}, "read_only": True, "cap_drop": ["ALL"]}
        container = engine_client.create_container(
            image,
            list(command),
            user=host.pop("user", "1000:1000"),
            environment={"HOME": "/tmp"},
            host_config=engine_client.create_host_config(network_mode="none", **(limits | host)),
        )
        created.append(container["Id"])
        engine_client.start(container)
        status = engine_client.wait(container, timeout=SECONDS)["StatusCode"]
        output = engine_client.logs(container).decode()
        assert status == 0, output
        return output

    yield run
    for container in created:
        engine_client.remove_container(container, force=True)


@BOTH
def test_the_image_is_what_this_version_builds(engine_client: docker.APIClient, image: str) -> None:
    assert [found.current for found in list_images(engine_client) if found.name == image] == [True]


@BOTH
def test_no_file_gives_rights_away(inside: Callable[..., str], image: str) -> None:
    root = {"user": "0:0", "cap_drop": []}
    assert inside(image, "find", "/", "-xdev", "-type", "f", "-perm", "/6000", **root) == ""


@BOTH
def test_what_programs_could_write_to_is_only_what_anybody_can(
    inside: Callable[..., str], image: str
) -> None:
    command = "find / -xdev -path /dev -prune -o -writable ! -type l -print 2>/dev/null || true"
    writable = set(inside(image, "sh", "-c", command, read_only=False).split())
    assert writable <= {"/tmp", "/scratch", "/workspace", "/var/tmp", "/run/lock"}


@BOTH
def test_an_image_starts_nothing_and_keeps_nothing_by_itself(
    engine_client: docker.APIClient, image: str
) -> None:
    config = engine_client.inspect_image(image)["Config"]
    assert not config.get("Volumes")
    assert not config.get("Entrypoint")
    assert not config.get("Healthcheck")
    assert config["User"] == "1000:1000"


@BOTH
def test_nothing_of_the_build_is_left_in_any_layer(
    engine_client: docker.APIClient, inside: Callable[..., str], image: str
) -> None:
    assert len(engine_client.inspect_image(image)["RootFS"]["Layers"]) == 1
    assert inside(image, "sh", "-c", "ls -d /build /root/.cache 2>/dev/null || true", user="0:0") == ""


@BOTH
def test_python_and_a_shell_are_there_and_programs_are_somebody(
    inside: Callable[..., str], image: str
) -> None:
    assert (
        inside(image, "bash", "-lc", "whoami; cd ~; pwd; python3 -c 'print(1 + 1)'") == "sandbox\n/tmp\n2\n"
    )


@BOTH
def test_the_standard_library_starts_from_bytecode(inside: Callable[..., str], image: str) -> None:
    loaded = inside(image, "python3", "-v", "-c", "import json, asyncio")
    assert "code object from" in loaded
    assert not re.findall(r"code object from '.*\.py'", loaded)


def test_every_promised_package_imports_without_a_word(inside: Callable[..., str]) -> None:
    modules = (
        "numpy, scipy.stats, pandas, pyarrow.parquet, sklearn.ensemble, statsmodels.api, sympy, networkx, "
        "matplotlib.pyplot, seaborn, plotly.express, PIL.Image, openpyxl, xlsxwriter, docx, pptx, pypdf, "
        "reportlab.pdfgen.canvas, bs4, lxml.etree, requests, yaml, tabulate, tqdm, dateutil, pytest, pip, zoneinfo"
    )
    assert inside(STANDARD, "python3", "-W", "error", "-c", f"import {modules}") == ""


def test_every_promised_tool_is_there(inside: Callable[..., str]) -> None:
    tools = "bash bc bzip2 curl file git jq less patch pip ps rg sqlite3 unzip xz zip"
    found = inside(STANDARD, "sh", "-c", f"for tool in {tools}; do command -v $tool; done || true").split()
    assert " ".join(path.rpartition("/")[2] for path in found) == tools


def test_a_plot_in_any_script_is_drawn_without_a_word_and_without_making_a_font_list(
    inside: Callable[..., str],
) -> None:
    program = (
        "import matplotlib.pyplot as plt, pathlib\n"
        "plt.plot([1]); plt.title('Ελλάδα 日本語 한국어'); plt.savefig('/tmp/x.png')\n"
        "print(*pathlib.Path('/tmp').rglob('fontlist*'))\n"
    )
    assert inside(STANDARD, "python3", "-W", "error", "-c", program) == "\n"


def test_tables_pass_through_every_promised_format(inside: Callable[..., str]) -> None:
    program = (
        "import pandas as pd\n"
        "table = pd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})\n"
        "table.to_parquet('/scratch/t.parquet'); table.to_excel('/scratch/t.xlsx', index=False)\n"
        "table.to_csv('/scratch/t.csv', index=False)\n"
        "for read in (pd.read_parquet, pd.read_excel, pd.read_csv):\n"
        "    got = read('/scratch/t.' + read.__name__[5:].replace('excel', 'xlsx'))\n"
        "    assert got.to_dict() == table.to_dict(), read\n"
    )
    assert inside(STANDARD, "python3", "-c", program) == ""


def test_a_base_without_python_fails_and_says_at_which_step(engine_client: docker.APIClient) -> None:
    empty = io.BytesIO()
    tarfile.open(fileobj=empty, mode="w").close()
    engine_client.import_image_from_data(empty.getvalue(), repository="mcp-sandbox-test/empty", tag="latest")
    try:
        with pytest.raises(EngineError, match="step 4 of"):
            build(engine_client, "mcp-sandbox-test/empty")
    finally:
        engine_client.remove_image("mcp-sandbox-test/empty")


def test_a_base_that_is_nowhere_is_an_error_and_the_built_image_stays(
    engine_client: docker.APIClient,
) -> None:
    before = engine_client.inspect_image(MINIMAL)["Id"]
    with pytest.raises(ImageMissing, match="cannot be pulled"):
        build(engine_client, "registry.invalid/no/such:1")
    assert engine_client.inspect_image(MINIMAL)["Id"] == before


def build(client: docker.APIClient, base: str) -> None:
    build_image(client, base=base, minimal=True, ca_bundle=None, progress=lambda _: None)
