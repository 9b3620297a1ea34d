"""A package index of one's own: wheels made here, served over TLS at a loopback address, every request noted."""

from __future__ import annotations

import base64
import hashlib
import ssl
import threading
import zipfile
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import trustme

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


def make_wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    files: Mapping[str, str] | None = None,
    *,
    requires: Sequence[str] = (),
    scripts: Mapping[str, str] | None = None,
    executable: Sequence[str] = (),
    tag: str = "py3-none-any",
) -> Path:
    """Write a wheel with these files; `scripts` are console scripts, name to `module:function`."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    contents = {
        **(files or {f"{name}.py": f"version = {version!r}\n"}),
        f"{info}/METADATA": metadata + "".join(f"Requires-Dist: {each}\n" for each in requires),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    if scripts:
        lines = "".join(f"{script} = {target}\n" for script, target in scripts.items())
        contents[f"{info}/entry_points.txt"] = f"[console_scripts]\n{lines}"
    record = "".join(
        f"{path},{_record_hash(text.encode())},{len(text.encode())}\n" for path, text in contents.items()
    )
    contents[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    file = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(file, "w") as wheel:
        for path, text in contents.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (0o100755 if path in executable else 0o100644) << 16
            wheel.writestr(entry, text)
    return file


def lock_of(*wheels: Path) -> str:
    """Return the lock of these wheels, as pip's requirements."""
    return "".join(
        f"{_project(wheel)}=={_version(wheel)} --hash=sha256:{digest(wheel)}\n" for wheel in wheels
    )


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


class Index:
    """One index, and what was asked of it."""

    def __init__(self, folder: Path, url: str, ca_bundle: Path) -> None:
        self.folder = folder
        self.url = url
        self.ca_bundle = ca_bundle
        self.files_at = ""
        """Where its pages say that its files are; empty for itself."""
        self.requests: list[str] = []


@contextmanager
def serving(folder: Path) -> Iterator[Index]:
    """Serve the wheels and sdists in a folder, as they are at each request."""
    folder.mkdir(exist_ok=True)
    authority = trustme.CA()
    bundle = folder.parent / "authority.pem"
    authority.cert_pem.write_to_path(str(bundle))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            index.requests.append(self.path)
            kind, _, name = self.path.strip("/").partition("/")
            file = folder / name
            if kind == "files" and file.is_file():
                self._answer(file.read_bytes(), "application/octet-stream")
                return
            found = [each for each in sorted(folder.iterdir()) if _project(each) == name]
            links = "".join(
                f'<a href="{index.files_at}/files/{each.name}#sha256={digest(each)}">{each.name}</a>\n'
                for each in found
            )
            self._answer(
                f"<!DOCTYPE html><html><body>{links}</body></html>".encode(),
                "text/html",
                200 if found else 404,
            )

        def _answer(self, body: bytes, kind: str, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that hangs up is no matter
    index = Index(folder, f"https://127.0.0.1:{server.server_port}/simple", bundle)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _project(file: Path) -> str:
    return file.name.split("-")[0].replace("_", "-").lower()


def _version(file: Path) -> str:
    return file.name.split("-")[1]


def _record_hash(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
