"""Files as people have them, read by programs as models write them: the results are what a person would expect."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import sqlite3
import struct
import sys
import zipfile
import zlib
from email.message import EmailMessage
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.clients.raw import RawClient, configuration_file, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

DATA = Path(__file__).parent / "data"
SECONDS = 200.0
SERVE = (sys.executable, "-m", "mcp_sandbox", "serve")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def server(engine_host: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RawClient]:
    """A server whose workspace is a folder of public data, and of files of the shapes that people have."""
    base = tmp_path_factory.mktemp("data-files")
    folder = base / "folder"
    shutil.copytree(DATA, folder)
    make_files(folder)
    configuration = configuration_file(
        base,
        engine_host,
        server={"reply_within_seconds": SECONDS},
        image="mcp-sandbox/standard",
        timeout_seconds=120,
        preload=["pandas"],
    )
    text = configuration.read_text() + f'\n[workspaces.data]\npath = "{folder}"\n'
    configuration.write_text(text)
    command = [*SERVE, "--config", str(configuration), "--workspace", "data"]
    async with serving(configuration, command=command) as client:
        yield client


def make_files(folder: Path) -> None:
    """Make what is not public data: small, and of the shapes that offices, servers and phones give away."""
    table = (
        "Gemeinde;Fläche in km²;Einwohner;Stand\n"
        "Köln;405,01;1.073.096;31.12.2021\n"
        "Düren;85,02;91.814;31.12.2021\n"
    )
    (folder / "einwohner.csv").write_bytes(table.encode("latin-1"))
    answers = 'id\tage\tcomment\r\n1\t34\t"two\nlines"\r\n2\tNA\t"with\ttab"\r\n3\t58\tnaïve ☕\r\n'
    (folder / "survey.tsv").write_bytes(answers.encode("utf-8-sig"))
    lines = [
        f"192.0.2.{n % 5} - - [12/Mar/2024:10:{n:02}:00 +0000] "
        f'"GET /page{n % 3} HTTP/1.1" {500 if n % 20 == 7 else 200} {n * 10}'
        for n in range(60)
    ]
    with gzip.open(folder / "access.log.gz", "wt") as log:
        log.write("\n".join(lines))
    with sqlite3.connect(folder / "shop.sqlite") as shop:
        shop.execute("CREATE TABLE orders (customer TEXT, cents INTEGER)")
        shop.executemany("INSERT INTO orders VALUES (?, ?)", [("Ana", 1250), ("Bo", 499), ("Ana", 750)])
    shop.close()
    with zipfile.ZipFile(folder / "months.zip", "w") as archive:
        for month in range(1, 4):
            archive.writestr(
                f"2024/{month:02}.csv", "day,sold\n" + "".join(f"{d},{d * month}\n" for d in range(1, 11))
            )
    (folder / "places.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": [
        {"type": "Feature", "properties": {"name": name}, "geometry": {"type": "Point", "coordinates": at}}
        for name, at in (("Köln", [6.96, 50.94]), ("Berlin", [13.4, 52.52]))
    ]}))  # fmt: skip
    (folder / "feed.xml").write_text(
        '<feed xmlns="http://www.w3.org/2005/Atom">'
        "<entry><title>One &amp; two</title></entry><entry><title>Drei</title></entry></feed>"
    )
    mail = EmailMessage()
    mail["Subject"] = "Zahlen für März"
    mail.set_content("See the table.\n")
    mail.add_attachment(b"a,b\n1,2\n3,4\n", maintype="text", subtype="csv", filename="table.csv")
    (folder / "mail.eml").write_bytes(bytes(mail))
    (folder / "calendar.ics").write_text(
        "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nDTSTART:20240312T090000Z\r\nDTEND:20240312T103000Z\r\n"
        "END:VEVENT\r\nEND:VCALENDAR\r\n"
    )
    (folder / "photo.png").write_bytes(png(40, 30))


def png(width: int, height: int) -> bytes:
    """Return a red picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = (b"\0" + b"\xff\0\0" * width) * height
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


async def python(server: RawClient, code: str, **arguments: object) -> dict[str, Any]:
    """Run a program that must end well, and return what came of it."""
    answer = await server.call("execute_python", seconds=SECONDS, code=code, **arguments)
    result: dict[str, Any] = answer["structuredContent"]
    assert (result["exit_code"], result["stderr"]) == (0, ""), result
    result["kinds"] = [content["type"] for content in answer["content"]]
    return result


ANSWERS = {
    "seattle-weather.csv": (
        "import pandas as pd\n"
        "df = pd.read_csv('seattle-weather.csv', parse_dates=['date'])\n"
        "print(len(df), df.groupby(df.date.dt.year).precipitation.sum().round(1).to_dict())\n"
        "print(df.loc[df.precipitation.idxmax(), 'date'].date(), df.weather.value_counts().idxmax())\n",
        "1461 {2012: 1226.0, 2013: 828.0, 2014: 1232.8, 2015: 1139.2}\n2015-03-15 sun\n",
    ),
    "anscombe.json": (
        "import pandas as pd\n"
        "df = pd.read_json('anscombe.json')\n"
        "for name, part in df.groupby('Series'):\n"
        "    print(name, part.X.mean(), round(part.Y.mean(), 2), round(part.X.corr(part.Y), 3))\n",
        "I 9.0 7.5 0.816\nII 9.0 7.5 0.816\nIII 9.0 7.5 0.816\nIV 9.0 7.5 0.817\n",
    ),
    "crimea.json": (
        "import json\n"
        "months = json.load(open('crimea.json'))\n"
        "worst = max(months, key=lambda month: month['disease'])\n"
        "print(worst['date'], worst['disease'], *(sum(m[k] for m in months) for k in ('wounds', 'disease')))\n",
        "1855-01-01 1440 3770 12640\n",
    ),
    "wheat.json": (
        "import pandas as pd\n"
        "df = pd.read_json('wheat.json')\n"
        "dearest = df.loc[df.wheat.idxmax()]\n"
        "print(int(dearest.year), int(dearest.wheat), int(df.wages.isna().sum()))\n",
        "1810 99 2\n",
    ),
    "iowa-electricity.csv": (
        "import pandas as pd\n"
        "table = pd.read_csv('iowa-electricity.csv').pivot(index='year', columns='source', values='net_generation')\n"
        "share = table.div(table.sum(axis=1), axis=0).mul(100).round(1).Renewables\n"
        "print(share.iloc[0], share.iloc[-1])\n",
        "3.5 38.8\n",
    ),
    "iris.json": (
        "import pandas as pd\n"
        "from sklearn.neighbors import KNeighborsClassifier\n"
        "df = pd.read_json('iris.json')\n"
        "print(df.groupby('species').petalLength.mean().round(3).to_dict())\n"
        "X, y = df.drop(columns='species'), df.species\n"
        "print(KNeighborsClassifier(3).fit(X, y).score(X, y) > 0.94)\n",
        "{'setosa': 1.462, 'versicolor': 4.26, 'virginica': 5.552}\nTrue\n",
    ),
    "einwohner.csv": (
        "import pandas as pd\n"
        "df = pd.read_csv('einwohner.csv', sep=';', encoding='latin-1', decimal=',', thousands='.')\n"
        "df['dichte'] = (df['Einwohner'] / df['Fläche in km²']).round()\n"
        "print(df[['Gemeinde', 'dichte']].to_csv(index=False), end='')\n",
        "Gemeinde,dichte\nKöln,2650.0\nDüren,1080.0\n",
    ),
    "survey.tsv": (
        "import pandas as pd\n"
        "df = pd.read_csv('survey.tsv', sep='\\t', encoding='utf-8-sig')\n"
        "print(list(df.columns), df.age.mean(), df.comment.tolist())\n",
        "['id', 'age', 'comment'] 46.0 ['two\\nlines', 'with\\ttab', 'naïve ☕']\n",
    ),
    "access.log.gz": (
        "import gzip, re, collections\n"
        "errors = collections.Counter()\n"
        "for line in gzip.open('access.log.gz', 'rt'):\n"
        "    address, path, status = re.match(r'(\\S+) .*?\"GET (\\S+) .*?\" (\\d+)', line).groups()\n"
        "    errors[path] += status == '500'\n"
        "print(dict(errors))\n",
        "{'/page0': 1, '/page1': 1, '/page2': 1}\n",
    ),
    "shop.sqlite": (
        "import pandas as pd, sqlite3\n"
        "shop = sqlite3.connect('shop.sqlite')\n"
        "print(pd.read_sql('SELECT customer, sum(cents) / 100.0 AS total FROM orders GROUP BY customer', shop)"
        ".to_string(index=False))\n",
        "customer  total\n     Ana  20.00\n      Bo   4.99\n",
    ),
    "months.zip": (
        "import pandas as pd, zipfile\n"
        "with zipfile.ZipFile('months.zip') as archive:\n"
        "    parts = {name: pd.read_csv(archive.open(name)) for name in archive.namelist()}\n"
        "print({name: int(part.sold.sum()) for name, part in parts.items()})\n",
        "{'2024/01.csv': 55, '2024/02.csv': 110, '2024/03.csv': 165}\n",
    ),
    "places.geojson": (
        "import json, math\n"
        "a, b = (f['geometry']['coordinates'] for f in json.load(open('places.geojson'))['features'])\n"
        "(x1, y1), (x2, y2) = (map(math.radians, at) for at in (a, b))\n"
        "h = math.sin((y2 - y1) / 2) ** 2 + math.cos(y1) * math.cos(y2) * math.sin((x2 - x1) / 2) ** 2\n"
        "print(round(2 * 6371 * math.asin(math.sqrt(h))), 'km')\n",
        "477 km\n",
    ),
    "feed.xml": (
        "from bs4 import BeautifulSoup\n"
        "print([t.text for t in BeautifulSoup(open('feed.xml'), 'xml').find_all('title')])\n",
        "['One & two', 'Drei']\n",
    ),
    "mail.eml": (
        "import email, email.policy, io, pandas as pd\n"
        "mail = email.message_from_binary_file(open('mail.eml', 'rb'), policy=email.policy.default)\n"
        "(part,) = mail.iter_attachments()\n"
        "print(mail['subject'], part.get_filename(), int(pd.read_csv(io.StringIO(part.get_content())).b.sum()))\n",
        "Zahlen für März table.csv 6\n",
    ),
    "calendar.ics": (
        "import re, datetime\n"
        "start, end = (datetime.datetime.strptime(t, '%Y%m%dT%H%M%SZ') for t in\n"
        "              re.findall(r'DT(?:START|END):(\\S+)', open('calendar.ics').read()))\n"
        "print(f'{start:%A}', end - start)\n",
        "Tuesday 1:30:00\n",
    ),
    "photo.png": (
        "from PIL import Image\n"
        "photo = Image.open('photo.png')\n"
        "print(photo.size, photo.getpixel((3, 3)))\n",
        "(40, 30) (255, 0, 0)\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
async def test_a_file_gives_the_answer_that_a_person_would_expect(server: RawClient, name: str) -> None:
    code, answer = ANSWERS[name]
    result = await python(server, code)
    assert result["stdout"] == answer
    assert result["artifacts"] == []


async def test_office_files_pass_from_run_to_run(server: RawClient) -> None:
    made = await python(
        server,
        "import pandas as pd, docx\n"
        "df = pd.read_json('crimea.json')\n"
        "df['date'] = pd.to_datetime(df['date'])\n"
        "with pd.ExcelWriter('crimea.xlsx') as book:\n"
        "    for year, part in df.groupby(df.date.dt.year): part.to_excel(book, sheet_name=str(year), index=False)\n"
        "df.to_parquet('crimea.parquet')\n"
        "page = docx.Document(); page.add_heading('Crimea'); page.save('crimea.docx')\n",
    )
    assert [file["path"] for file in made["artifacts"]] == ["crimea.docx", "crimea.parquet", "crimea.xlsx"]
    read = await python(
        server,
        "import pandas as pd, docx\n"
        "sheets = pd.read_excel('crimea.xlsx', sheet_name=None)\n"
        "print({name: int(sheet.disease.sum()) for name, sheet in sheets.items()})\n"
        "print(int(pd.read_parquet('crimea.parquet').disease.sum()))\n"
        "print(docx.Document('crimea.docx').paragraphs[0].text)\n",
        inputs=[f"{made['run_id']}/{file['path']}" for file in made["artifacts"]],
    )
    by_year: dict[str, int] = {}
    for month in json.loads((DATA / "crimea.json").read_text()):
        by_year[month["date"][:4]] = by_year.get(month["date"][:4], 0) + month["disease"]
    assert read["stdout"] == f"{by_year}\n12640\nCrimea\n"


def cells() -> list[str]:
    notebook = json.loads((DATA / "weather.ipynb").read_text())
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


async def test_the_cells_of_a_notebook_run_as_one_program_and_its_figure_is_seen(server: RawClient) -> None:
    code = "\n".join(cells()).replace("%matplotlib inline\n", "")
    result = await python(server, code)
    assert result["stdout"] == "8      40.9\n12    155.7\nlongest dry spell: 48 days\n"
    assert [file["path"] for file in result["artifacts"]] == ["figure-1.png"]
    assert result["kinds"] == ["text", "image", "resource_link"]


async def test_what_only_a_notebook_understands_is_told_as_that(server: RawClient) -> None:
    magic, load, *_ = cells()
    result = (await server.call("execute_python", seconds=SECONDS, code=magic))["structuredContent"]
    assert result["exit_code"] == 1
    assert result["hint"].startswith("Lines that begin with % or ! are a notebook's")
    silent = await python(server, "import pandas as pd\n" + load)
    assert silent["hint"].startswith("Nothing was printed")


async def test_a_file_of_the_call_is_as_good_as_one_of_the_folder(server: RawClient) -> None:
    given = "data:;base64," + base64.b64encode(gzip.compress(b"x,y\n1,2\n")).decode()
    result = await python(
        server,
        "import pandas as pd; print(pd.read_csv('t.csv.gz').y.sum(), pd.read_csv('u.csv').b.tolist())",
        files={"t.csv.gz": given, "u.csv": "a,b\n1,ü\n"},
    )
    assert result["stdout"] == "2 ['ü']\n"
