"""Pictures that programs make are seen: every kind, none too large for a conversation, no hostile one opened here."""

from __future__ import annotations

import base64
import io
import json
from typing import TYPE_CHECKING, Any

import imagesize
import pytest

from tests.clients.raw import RawClient, configuration_file, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

MANY_SECONDS = 200.0
MOST_BYTES = 1_000_000
"""What Claude Desktop takes of one result."""
MOST_PIXELS = 2000
KINDS = {"image/png": b"\x89PNG", "image/jpeg": b"\xff\xd8\xff", "image/webp": b"RIFF", "image/gif": b"GIF8"}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def server(engine_host: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RawClient]:
    configuration = configuration_file(
        tmp_path_factory.mktemp("pictures"),
        engine_host,
        server={"reply_within_seconds": MANY_SECONDS},
        image="mcp-sandbox/standard",
        timeout_seconds=120,
    )
    async with serving(configuration) as client:
        yield client


async def pictures(server: RawClient, code: str) -> tuple[dict[str, Any], list[tuple[str, bytes]]]:
    """Return the structured result, and type and content of each picture that came with it."""
    answer = await server.call("execute_python", code=code, seconds=MANY_SECONDS)
    assert len(json.dumps(answer, ensure_ascii=False).encode()) < MOST_BYTES
    result = answer["structuredContent"]
    assert result["exit_code"] == 0, result
    shown = [
        (content["mimeType"], base64.b64decode(content["data"]))
        for content in answer["content"]
        if content["type"] == "image"
    ]
    for kind, data in shown:
        assert data.startswith(KINDS[kind])
        width, height = imagesize.get(io.BytesIO(data))
        assert 0 < width <= MOST_PIXELS
        assert 0 < height <= MOST_PIXELS
    return result, shown


def names(result: dict[str, Any]) -> list[str]:
    return [artifact["path"] for artifact in result["artifacts"]]


# Without being asked


@pytest.mark.parametrize(
    ("code", "made"),
    [
        ("plt.plot([1, 2, 3])", ["figure-1.png"]),
        ("plt.plot([1, 2, 3]); plt.show()", ["figure-1.png"]),
        ("plt.plot([1]); plt.show(); plt.plot([2]); plt.show()", ["figure-1.png", "figure-2.png"]),
        ("plt.figure(); plt.plot([1]); plt.figure(); plt.plot([2])", ["figure-1.png", "figure-2.png"]),
        ("plt.plot([1]); plt.savefig('mine.png')", ["mine.png"]),
        ("plt.plot([1]); plt.savefig('mine.png'); plt.show()", ["mine.png"]),
        ("plt.plot([1]); plt.savefig('mine.pdf')", ["mine.pdf"]),
        ("plt.plot([1]); plt.close()", []),
        ("fig, ax = plt.subplots(); ax.plot([1]); fig.show()", ["figure-1.png"]),
        ("plt.figure()", []),
        ("plt.plot([1]); import os; os.chdir('/tmp')", ["figure-1.png"]),
        ("open('figure-1.png', 'w').close(); plt.plot([1])", ["figure-1.png", "figure-2.png"]),
        ("import os; plt.plot([1]); os.fork()", ["figure-1.png"]),
    ],
)
async def test_figures_that_are_shown_or_left_open_come_out_once(
    server: RawClient, code: str, made: list[str]
) -> None:
    result, _ = await pictures(server, f"import matplotlib.pyplot as plt\n{code}")
    assert names(result) == made
    assert result["stderr"] == ""


async def test_figures_of_a_program_that_chose_its_backend_come_out_too(server: RawClient) -> None:
    code = (
        "import matplotlib\nmatplotlib.use('Agg')\nimport matplotlib.pyplot as plt\nplt.plot([1]); plt.show()"
    )
    result, shown = await pictures(server, code)
    assert names(result) == ["figure-1.png"]
    assert [kind for kind, _ in shown] == ["image/png"]


async def test_a_figure_that_could_not_be_saved_comes_out_all_the_same(server: RawClient) -> None:
    code = "import matplotlib.pyplot as plt; plt.plot([1]); plt.savefig('no/such/folder/mine.png')"
    answer = await server.call("execute_python", code=code, seconds=MANY_SECONDS)
    assert "FileNotFoundError" in answer["structuredContent"]["stderr"]
    assert names(answer["structuredContent"]) == ["figure-1.png"]


async def test_figures_of_a_program_that_fails_come_out(server: RawClient) -> None:
    answer = await server.call(
        "execute_python", code="import matplotlib.pyplot as plt; plt.plot([1]); 1 / 0", seconds=MANY_SECONDS
    )
    assert answer["structuredContent"]["exit_code"] == 1
    assert names(answer["structuredContent"]) == ["figure-1.png"]


async def test_a_figure_that_cannot_be_drawn_is_told_and_changes_no_exit_code(server: RawClient) -> None:
    answer = await server.call(
        "execute_python",
        code="import matplotlib.pyplot as plt; plt.plot([1]); plt.title(r'$\\frac$'); raise SystemExit(7)",
        seconds=MANY_SECONDS,
    )
    result = answer["structuredContent"]
    assert (result["exit_code"], names(result)) == (7, [])
    assert "sandbox: figure 1 cannot be drawn" in result["stderr"]


async def test_a_picture_that_is_shown_comes_out(server: RawClient) -> None:
    result, shown = await pictures(
        server,
        "from PIL import Image\nfor mode in ('RGB', 'CMYK', 'L', 'P', '1'): Image.new(mode, (9, 9)).show()",
    )
    assert names(result) == [f"figure-{n}.png" for n in range(1, 6)]
    assert len(shown) == 4


@pytest.mark.parametrize("where", ["", "'browser'", "'notebook'", "'png', config={'displayModeBar': False}"])
async def test_a_plotly_figure_that_is_shown_comes_out_as_a_page_that_needs_nothing_else(
    server: RawClient, where: str
) -> None:
    code = f"import plotly.express as px\npx.scatter(x=[1, 2], y=[3, 4], title='Größe').show({where})"
    result, shown = await pictures(server, code)
    assert (result["stdout"], result["stderr"], shown) == ("", "", [])
    (page,) = result["artifacts"]
    assert (page["path"], page["mime_type"]) == ("figure-1.html", "text/html")
    found = await server.request("resources/read", {"uri": page["uri"]})
    html = base64.b64decode(found["result"]["contents"][0]["blob"]).decode()
    assert "Gr\\u00f6\\u00dfe" in html or "Größe" in html
    assert 'src="http' not in html
    assert ("displayModeBar" in html.rpartition("newPlot")[2]) == ("config" in where)


async def test_a_program_that_draws_nothing_is_not_disturbed(server: RawClient) -> None:
    code = (
        "import sys\n"
        "names = [n for n in sys.modules if n.split('.')[0] in ('matplotlib', 'PIL', 'plotly', 'numpy')]\n"
        "print(names, [n for n in sys.modules if 'sandbox' in n])\n"
        "import json, email, PIL, matplotlib\n"
        "from matplotlib.figure import Figure\n"
        "from PIL import Image\n"
        "f = Figure(); f.subplots().plot([1]); f.savefig('own.png')\n"
        "Image.new('RGB', (1, 1)).save('own2.png')\n"
    )
    result = await server.python(code, seconds=MANY_SECONDS)
    assert (result["stdout"], result["stderr"]) == ("[] ['sandbox_figures']\n", "")
    assert names(result) == ["own.png", "own2.png"]


# What is seen of them


async def test_every_kind_of_picture_is_seen_as_it_is(server: RawClient) -> None:
    code = (
        "from PIL import Image\n"
        "image = Image.radial_gradient('L').convert('RGB')\n"
        "for kind in ('png', 'jpg', 'webp', 'gif'): image.save('picture.' + kind)\n"
    )
    result, shown = await pictures(server, code)
    assert sorted(kind for kind, _ in shown) == sorted(KINDS)
    sizes = {artifact["mime_type"]: artifact["size"] for artifact in result["artifacts"]}
    assert {kind: len(data) for kind, data in shown} == sizes


async def test_what_is_too_large_is_seen_smaller_and_kept_as_it_is(server: RawClient) -> None:
    code = (
        "import os\nfrom PIL import Image\n"
        "Image.frombytes('RGB', (900, 700), os.urandom(900 * 700 * 3)).save('noise.png')\n"
        "Image.new('RGB', (5000, 3000), 'green').save('wide.png')\n"
        "Image.new('RGBA', (2500, 2500), (255, 0, 0, 0)).save('clear.png')\n"
        "Image.radial_gradient('L').resize((3000, 3000)).save('round.jpg', quality=100)\n"
    )
    result, shown = await pictures(server, code)
    assert len(shown) == 4
    sizes = {artifact["path"]: artifact["size"] for artifact in result["artifacts"]}
    assert sizes["noise.png"] > 1_000_000
    assert all(len(data) <= 160 << 10 for _, data in shown)
    found = {imagesize.get(io.BytesIO(data)) for _, data in shown}
    assert (1568, 941) in found  # its sides keep their proportion


async def test_more_pictures_than_fit_are_told_of_and_the_likeliest_seen(server: RawClient) -> None:
    code = (
        "import os\nfrom PIL import Image\nimport matplotlib.pyplot as plt\n"
        "os.mkdir('deep')\n"
        "for i in range(12): Image.new('RGB', (i + 1, 1)).save(f'a{i}.png')\n"
        "Image.new('RGB', (99, 1)).save('deep/b.png')\n"
        "for i in range(2): plt.figure(figsize=(1, 1)); plt.plot([i])\n"
    )
    result, shown = await pictures(server, code)
    assert len(names(result)) == 15
    widths = [imagesize.get(io.BytesIO(data))[0] for _, data in shown]
    assert len(widths) == 4
    assert widths[0] > 12  # the figures, which were drawn to be seen
    assert widths[1] > 12
    assert widths[2:] == [1, 2]  # then what lies nearest: a0, a1


async def test_the_largest_answer_there_can_be_fits(server: RawClient) -> None:
    code = (
        "import os, sys\nfrom PIL import Image\n"
        "for i in range(6): Image.frombytes('RGB', (400, 130), os.urandom(400 * 130 * 3)).save(f'n{i}.png')\n"
        "print('x' * 40_000); print('y' * 40_000, file=sys.stderr)\n"
        "for i in range(300): open(f'{i:03}' + 'n' * 200, 'w').close()\n"
    )
    result, shown = await pictures(server, code)  # which looks at the size of the answer
    assert len(shown) == 3  # a fourth would not have fitted
    assert all(len(data) > 100_000 for _, data in shown)
    assert (len(names(result)), result["artifacts_unnamed"]) == (50, 256)


async def test_an_answer_of_nothing_but_long_names_fits_and_the_record_has_them_all(
    server: RawClient,
) -> None:
    code = (
        "import os, sys\nfrom PIL import Image\n"
        "deep = '/'.join(['Ж' * 120] * 4); os.makedirs(deep)\n"
        "for i in range(60): open(f'{deep}/{i}', 'w').close()\n"
        "for i in range(4): Image.frombytes('RGB', (400, 130), os.urandom(400 * 130 * 3)).save(f'ж{i}.png')\n"
        "print('\\x07' * 40_000); print('€' * 40_000, file=sys.stderr)\n"
    )
    result, _ = await pictures(server, code)
    found = await server.request("resources/read", {"uri": f"run://{result['run_id']}"})
    recorded = json.loads(found["result"]["contents"][0]["text"])
    assert len(recorded["artifacts"]) == 64 == len(names(result)) + result["artifacts_unnamed"]


HOSTILE = {
    "an empty file": "open('x.png', 'w').close()",
    "text": "open('x.png', 'w').write('no picture at all')",
    "half a picture": (
        "from PIL import Image; import io\nb = io.BytesIO(); Image.new('RGB', (3000, 3000)).save(b, 'PNG')\n"
        "open('x.png', 'wb').write(b.getvalue()[:len(b.getvalue()) // 2])"
    ),
    "a decompression bomb": (
        "import struct, zlib\n"
        "def chunk(k, d): return struct.pack('>I', len(d)) + k + d + struct.pack('>I', zlib.crc32(k + d))\n"
        "packer = zlib.compressobj(9)\n"
        "rows = b''.join(packer.compress(bytes(1 << 20)) for _ in range(300)) + packer.flush()\n"
        "header = chunk(b'IHDR', struct.pack('>IIBBBBB', 60000, 60000, 8, 2, 0, 0, 0))\n"
        "with open('x.png', 'wb') as file:\n"
        "    file.write(b'\\x89PNG\\r\\n\\x1a\\n' + header + chunk(b'IDAT', rows) + chunk(b'IEND', b''))"
    ),
    "sides of no pixels": (
        "import struct, zlib\n"
        "d = b'IHDR' + struct.pack('>IIBBBBB', 0, 0, 8, 2, 0, 0, 0)\n"
        "header = struct.pack('>I', 13) + d + struct.pack('>I', zlib.crc32(d))\n"
        "open('x.png', 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n' + header)"
    ),
    "a name that lies": "open('x.png', 'wb').write(open('/usr/bin/env', 'rb').read())",
    "a drawing that runs scripts": "open('x.svg', 'w').write('<svg onload=\"alert(1)\"/>')",
}


@pytest.mark.parametrize("case", HOSTILE)
async def test_what_is_no_picture_is_a_file_like_others_and_harms_nothing(
    server: RawClient, case: str
) -> None:
    result, shown = await pictures(server, HOSTILE[case])
    assert len(names(result)) == 1
    assert shown == []
    assert (await server.shell("echo on", seconds=MANY_SECONDS))["stdout"] == "on\n"


async def test_a_picture_is_read_again_by_its_name(server: RawClient) -> None:
    result, _ = await pictures(server, "from PIL import Image; Image.new('RGB', (4000, 10)).save('long.png')")
    answer = await server.call(
        "read_artifact", run_id=result["run_id"], path="long.png", seconds=MANY_SECONDS
    )
    kinds = [content["type"] for content in answer["content"]]
    assert kinds == ["text", "image"]
    data = base64.b64decode(answer["content"][1]["data"])
    assert imagesize.get(io.BytesIO(data))[0] <= MOST_PIXELS
    assert answer["structuredContent"]["next_offset"] is None
