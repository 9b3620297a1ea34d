"""What a call brings along, and what programs make of files as people have them."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import sqlite3
import struct
import zipfile
import zlib
from typing import TYPE_CHECKING

import pytest

from tests.clients.raw import RawClient, configuration_file, server_command, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.clients.raw import Message

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

MANY_SECONDS = 200.0


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A person's folder, with a file of every shape that can be made without a library."""
    folder = tmp_path_factory.mktemp("papers")
    folder.chmod(0o755)
    (folder / "quoted.csv").write_text(
        'name,note,amount\n"Smith, J.","said ""hi""\nand left",1.5\n"Müller",,"2,000"\n'
    )
    events = [{"at": f"2024-0{m}-01", "kind": kind} for m in (1, 2, 3) for kind in ("open", "close", "open")]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (folder / "latin.tsv").write_bytes(
        "Stadt\tEinwohner\nMünchen\t1512491\nKöln\t1084831\n".encode("latin-1")
    )
    (folder / "fixed.txt").write_text(
        "0001Widget        12.50\n0002Größeres Teil 199.99\n0003Gadget         7.00\n"
    )
    (folder / "table.html").write_text(
        "<html><body><h1>Elements</h1><table><thead><tr><th>Symbol</th><th>Mass</th></tr></thead>"
        "<tbody><tr><td>H</td><td>1.008</td></tr><tr><td>He</td><td>4.0026</td></tr></tbody></table></body></html>"
    )
    with gzip.open(folder / "log.gz", "wt") as log:
        log.writelines(f"10.0.0.{i % 5} - GET /page/{i % 3} {200 if i % 7 else 500}\n" for i in range(700))
    with zipfile.ZipFile(folder / "parts.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for month in ("jan", "feb"):
            archive.writestr(f"2024/{month}.csv", f"month,n\n{month},{len(month)}\n")
    database = sqlite3.connect(folder / "shop.db")
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, total REAL)")
    database.executemany(
        "INSERT INTO orders VALUES (?, ?, ?)", [(1, "ann", 10.5), (2, "bob", 20.0), (3, "ann", 4.5)]
    )
    database.commit()
    database.close()
    (folder / "dot.png").write_bytes(png(3, 2, b"\xff\x00\x00"))
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Totals\n"]},
        {"cell_type": "code", "source": ["import pandas as pd\n", "df = pd.read_csv('quoted.csv')\n"]},
        {"cell_type": "code", "source": "total = len(df)\nprint('rows', total)"},
    ]
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}
    (folder / "notebook.ipynb").write_text(json.dumps(notebook))
    (folder / "nested.json").write_text(
        json.dumps({"items": [{"id": 1, "tags": ["a", "b"]}, {"id": 2, "tags": []}]})
    )
    (folder / "mail.eml").write_text(
        "From: a@example.com\nTo: b@example.com\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\n\nHello.\n"
    )
    for file in folder.iterdir():
        file.chmod(0o644)
    return folder


def png(width: int, height: int, pixel: bytes) -> bytes:
    """Return a picture of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = (b"\0" + pixel * width) * height
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


@pytest.fixture(scope="module")
async def server(
    engine_host: str, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RawClient]:
    home = tmp_path_factory.mktemp("home")
    configuration = configuration_file(
        home,
        engine_host,
        server={"reply_within_seconds": MANY_SECONDS},
        image="mcp-sandbox/standard",
        timeout_seconds=120,
    )
    configuration.write_text(f'{configuration.read_text()}\n[workspaces.papers]\npath = "{folder}"\n')
    command = [*server_command(configuration), "--workspace", "papers"]
    async with serving(configuration, command=command) as client:
        yield client


async def printed(server: RawClient, code: str, **arguments: object) -> str:
    result = await server.python(code, seconds=MANY_SECONDS, **arguments)
    assert result["exit_code"] == 0, result
    return str(result["stdout"])


# Files and stdin that come with the call


async def test_files_of_every_kind_are_there_under_their_names(server: RawClient) -> None:
    data = bytes(range(256)) * 10
    files = {
        "a.txt": "text with ü\r\n",
        "deep/er/b.csv": "1,2\n",
        "empty": "",
        "raw.bin": "data:;base64," + base64.b64encode(data).decode(),
        "typed.png": "data:image/png;base64," + base64.b64encode(png(1, 1, b"abc")).decode(),
        "no.url": "data:text/plain,just text",
    }
    out = await printed(
        server,
        "import hashlib\n"
        "for name in ('a.txt', 'deep/er/b.csv', 'empty', 'raw.bin', 'typed.png', 'no.url'):\n"
        "    print(hashlib.sha256(open(name, 'rb').read()).hexdigest())\n",
        files=files,
    )
    expected = [
        files["a.txt"].encode(),
        b"1,2\n",
        b"",
        data,
        png(1, 1, b"abc"),
        b"data:text/plain,just text",
    ]
    assert out.split() == [hashlib.sha256(content).hexdigest() for content in expected]


async def test_files_may_come_as_the_json_text_that_some_clients_send(server: RawClient) -> None:
    assert await printed(server, "print(open('a').read())", files='{"a": "x"}') == "x\n"


async def test_stdin_is_what_was_sent_and_then_its_end(server: RawClient) -> None:
    text = "first\nzweite ü\n" * 1000 + "no newline at the end"
    out = await printed(
        server, "import sys; d = sys.stdin.read(); print(len(d), d[-3:], repr(sys.stdin.read()))", stdin=text
    )
    assert out == f"{len(text)} end ''\n"
    result = await server.shell("cat; echo; wc -c", stdin="from the client")
    assert result["stdout"] == "from the client\n0\n"


async def test_a_file_of_the_call_goes_before_the_workspaces_and_changes_none_of_it(
    server: RawClient, folder: Path
) -> None:
    before = (folder / "quoted.csv").read_bytes()
    out = await printed(
        server,
        "print(open('quoted.csv').read(), len(open('/workspace/quoted.csv').read()) > 50)",
        files={"quoted.csv": "mine"},
    )
    assert out == "mine True\n"
    assert (folder / "quoted.csv").read_bytes() == before


async def test_a_file_of_the_call_comes_back_only_where_it_was_changed(server: RawClient) -> None:
    result = await server.python("open('b', 'a').write('+')", files={"a": "same", "b": "more"})
    assert [artifact["path"] for artifact in result["artifacts"]] == ["b"]


REFUSED = {
    "a path that leaves the folder": {"files": {"../x": ""}},
    "an absolute path": {"files": {"/etc/passwd": ""}},
    "a path through itself": {"files": {"a/../b": ""}},
    "an empty path": {"files": {"": ""}},
    "the program's own name": {"files": {"main.py": ""}},
    "a name with an escape": {"files": {"a\x1bb": ""}},
    "a folder that is a file": {"files": {"a": "", "a/b": ""}},
    "a folder of the workspace's": {"files": {"quoted.csv/x": ""}},
    "broken base64": {"files": {"a": "data:;base64,%%%"}},
    "more than may come": {"files": {"a": "x" * (9 << 20)}},
    "more files than may come": {"files": {str(i): "" for i in range(1001)}},
    "an input without a run": {"inputs": ["a.txt"]},
    "an input of no run": {"inputs": ["0000000000000/a.txt"]},
    "more inputs than may come": {"inputs": ["0000000000000/a.txt"] * 101},
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_be_taken_along_refuses_the_call_and_runs_nothing(
    server: RawClient, case: str
) -> None:
    result = await server.call("execute_python", code="print('ran')", seconds=MANY_SECONDS, **REFUSED[case])
    assert result["isError"]
    text = result["content"][0]["text"]
    assert text.startswith("refused: ")
    assert "ran" not in text.split()


# What earlier runs made


async def test_work_goes_on_from_what_an_earlier_run_made(server: RawClient) -> None:
    first = await server.python(
        "import pandas as pd\n"
        "df = pd.DataFrame({'city': ['Köln', 'Bonn'], 'n': [1, 2]})\n"
        "df.to_excel('book.xlsx', index=False)\n"
        "df.to_parquet('out/table.parquet') if __import__('os').makedirs('out') is None else 0\n",
        seconds=MANY_SECONDS,
    )
    assert sorted(artifact["path"] for artifact in first["artifacts"]) == ["book.xlsx", "out/table.parquet"]
    run_id = first["run_id"]
    out = await printed(
        server,
        "import pandas as pd\n"
        "print(pd.read_excel('book.xlsx').n.sum(), pd.read_parquet('out/table.parquet').city[0])\n",
        inputs=[f"{run_id}/book.xlsx", f"{run_id}/out/table.parquet"],
    )
    assert out == "3 Köln\n"


async def test_the_output_of_an_earlier_run_is_a_file_of_the_next(server: RawClient) -> None:
    first = await server.shell("seq 5")
    out = await printed(
        server, "print(sum(int(n) for n in open('stdout.txt')))", inputs=[f"{first['run_id']}/stdout.txt"]
    )
    assert out == "15\n"


# Files as people have them

SHAPES = {
    "quoted.csv": (
        "import csv\nrows = list(csv.DictReader(open('quoted.csv', newline='')))\n"
        "print(len(rows), repr(rows[0]['note']), rows[1]['amount'])",
        "2 'said \"hi\"\\nand left' 2,000",
    ),
    "quoted.csv, pandas": (
        "import pandas as pd\ndf = pd.read_csv('quoted.csv', thousands=',')\n"
        "print(df.amount.sum(), df.note.isna().sum(), df.name[1])",
        "2001.5 1 Müller",
    ),
    "events.jsonl": (
        "import pandas as pd\ndf = pd.read_json('events.jsonl', lines=True)\n"
        "print(df.groupby('kind').size().to_dict(), df['at'].max())",
        "{'close': 3, 'open': 6} 2024-03-01",
    ),
    "latin.tsv": (
        "import pandas as pd\ndf = pd.read_csv('latin.tsv', sep='\\t', encoding='latin-1')\n"
        "print(df.Stadt[0], df.Einwohner.sum())",
        "München 2597322",
    ),
    "fixed.txt": (
        "import pandas as pd\nnames = ['id', 'name', 'price']\n"
        "df = pd.read_fwf('fixed.txt', widths=[4, 13, 7], names=names, dtype={'id': str})\n"
        "print(df.id[1], df.name[1], round(df.price.sum(), 2))",
        "0002 Größeres Teil 219.49",
    ),
    "table.html": (
        "import pandas as pd\n(df,) = pd.read_html('table.html')\nprint(list(df.columns), df.Mass.max())",
        "['Symbol', 'Mass'] 4.0026",
    ),
    "log.gz": (
        "import gzip\nlines = gzip.open('log.gz', 'rt').readlines()\n"
        "print(len(lines), sum(line.endswith('500\\n') for line in lines))",
        "700 100",
    ),
    "parts.zip": (
        "import zipfile, pandas as pd\nwith zipfile.ZipFile('parts.zip') as z:\n"
        "    df = pd.concat(pd.read_csv(z.open(name)) for name in z.namelist())\n"
        "print(df.n.sum(), sorted(df.month))",
        "6 ['feb', 'jan']",
    ),
    "shop.db": (
        "import sqlite3\nwith sqlite3.connect('file:shop.db?mode=ro', uri=True) as db:\n"
        "    print(db.execute('SELECT customer, SUM(total) FROM orders GROUP BY 1 ORDER BY 1').fetchall())",
        "[('ann', 15.0), ('bob', 20.0)]",
    ),
    "dot.png": (
        "from PIL import Image\nimage = Image.open('dot.png')\nprint(image.size, image.getpixel((2, 1)))",
        "(3, 2) (255, 0, 0)",
    ),
    "notebook.ipynb": (
        "import json\nfor cell in json.load(open('notebook.ipynb'))['cells']:\n"
        "    if cell['cell_type'] == 'code': exec(''.join(cell['source']), globals())",
        "rows 2",
    ),
    "nested.json": (
        "import json, pandas as pd\ndf = pd.json_normalize(json.load(open('nested.json'))['items']).explode('tags')\n"
        "print(len(df), df.tags.isna().sum())",
        "3 1",
    ),
    "mail.eml": (
        "import email, email.policy\nmail = email.message_from_file(open('mail.eml'), policy=email.policy.default)\n"
        "print(mail['Subject'], mail.get_content().strip())",
        "Grüße Hello.",
    ),
    "all of them, by the shell": ("import subprocess\nsubprocess.run('ls | wc -l', shell=True)", "13"),
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_file_gives_what_a_person_would_expect(server: RawClient, shape: str) -> None:
    code, expected = SHAPES[shape]
    assert await printed(server, code) == expected + "\n"


async def test_the_shell_tools_read_them_too(server: RawClient) -> None:
    result: Message = await server.shell(
        "sqlite3 'file:shop.db?mode=ro' 'SELECT COUNT(*) FROM orders'; jq -c '.items[0].tags' nested.json; "
        "zcat log.gz | grep -c ' 500$'; unzip -p parts.zip 2024/jan.csv | tail -1; "
        "iconv -f latin1 -t utf8 latin.tsv | cut -f1 | tail -1; file -bL dot.png | cut -d, -f1",
        seconds=MANY_SECONDS,
    )
    assert result["stdout"].splitlines() == ["3", '["a","b"]', "100", "jan,3", "Köln", "PNG image data"], (
        result
    )
