"""Frames between the host side and the agent: what is sent, and how hostile bytes become values.

Above: `guest.session`. Below: nothing. The other half is `guest/inside/agent.py`.

    up    token (16 bytes) · kind (1) · length (4, big endian) · payload      agent → host
    down                     kind (1) · length (4, big endian) · payload      host → agent

Every byte from inside is hostile until it parses: lengths are bounded before anything is stored, kinds and
field names are closed sets, numbers are bounded, and nothing from inside chooses a type or a path. Once the
program has started, a frame without the token was not written by the agent; it ends the run.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

if TYPE_CHECKING:
    from collections.abc import Sequence

PROTOCOL = 1
TOKEN_BYTES = 16
MAX_PAYLOAD = 64 << 10
"""Largest payload from inside, in bytes."""
MAX_PATH_BYTES = 1024
"""Longest path of a file that comes out, in bytes."""
MAX_NUMBER = 1 << 62
WINDOW = 256 << 10
"""Bytes of one tunnelled connection, each way, that are under way unasked."""
MAX_CONNECTIONS = 64
"""Tunnelled connections at once; the agent accepts no more."""
EGRESS = "--egress"
"""Argument of an agent that takes connections to the outside."""
PROXY_PORT = 3128
"""Where it listens, on the sandbox's loopback."""
TERMINAL = 0
"""Number of the one connection that is a terminal."""

_UP = struct.Struct(f">{TOKEN_BYTES}scI")
_DOWN = struct.Struct(">cI")
_NUMBER = struct.Struct(">I")
_SIZE = struct.Struct(">HH")
_NO_TOKEN = bytes(TOKEN_BYTES)


class ProtocolViolation(Exception):
    """What came from inside was not written by our agent."""


class Kind(Enum):
    """What a frame from inside says."""

    HELLO = b"h"
    STARTED = b"s"
    STDOUT = b"o"
    STDERR = b"e"
    STDOUT_TAIL = b"O"
    STDERR_TAIL = b"E"
    END = b"x"
    ARTIFACT = b"a"
    ARTIFACT_DATA = b"d"
    ARTIFACT_REFUSED = b"r"
    DONE = b"z"
    OPENED = b"c"
    SENT = b"w"
    SENT_ALL = b"q"
    CREDIT = b"v"
    GONE = b"k"
    FAILED = b"f"


_GREETING = frozenset({Kind.HELLO})
_START = frozenset({Kind.STARTED, Kind.FAILED})
_RUNNING = frozenset(Kind) - _GREETING - _START


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame from inside."""

    kind: Kind
    payload: bytes


Reason = Literal["exited", "deadline", "killed"]


@dataclass(frozen=True, slots=True)
class End:
    """The agent's account of how the program ended; None is unknown."""

    reason: Reason
    exit_code: int | None
    signal: int | None
    stdout: int
    """Bytes that the program wrote in all."""
    stderr: int
    duration_ns: int
    cpu_us: int
    peak_bytes: int
    oom_kills: int | None
    stdout_lines: int | None = None
    """Line ends that the program wrote in all."""
    stderr_lines: int | None = None


class FrameReader:
    """Cuts a stream of bytes into frames, and refuses all that the agent cannot have written."""

    def __init__(self, token: bytes) -> None:
        self._token = token
        self._buffer = bytearray()
        self._turn = _GREETING

    def feed(self, data: bytes) -> None:
        """Take bytes as they came."""
        self._buffer += data

    def next_frame(self) -> Frame | None:
        """Return the next frame; None where more bytes are needed first.

        Raises:
            ProtocolViolation: What comes next is no frame of our agent's.
        """
        if len(self._buffer) < _UP.size:
            return None
        token, kind, length = _UP.unpack_from(self._buffer)
        known = self._check(token, kind, length)
        end = _UP.size + length
        if len(self._buffer) < end:
            return None
        payload = bytes(self._buffer[_UP.size : end])
        del self._buffer[:end]
        if self._turn is not _RUNNING:
            self._turn = _START if known is Kind.HELLO else _RUNNING
        return Frame(known, payload)

    def _check(self, token: bytes, kind: bytes, length: int) -> Kind:
        # Until the program starts the agent has no token: nobody else is there who could speak for it.
        if not hmac.compare_digest(token, self._token if self._turn is _RUNNING else _NO_TOKEN):
            raise ProtocolViolation("a frame came without the run's token")
        try:
            known = Kind(kind)
        except ValueError:
            raise ProtocolViolation("a frame of an unknown kind came") from None
        if known not in self._turn:
            raise ProtocolViolation("a frame came out of turn")
        if length > MAX_PAYLOAD:
            raise ProtocolViolation("a frame came that is larger than any of the agent's")
        return known


class ArtifactLimits(NamedTuple):
    """What may come out as files."""

    files: int
    each_bytes: int
    all_bytes: int


NO_ARTIFACTS = ArtifactLimits(0, 0, 0)


def encode_request(
    *,
    language: str,
    code: bytes,
    stdin: bytes,
    token: bytes,
    head: int,
    tail: int,
    deadline_ms: int,
    seekable: bool,
    artifacts: ArtifactLimits,
    environment: Sequence[tuple[str, bytes]] = (),
    terminal: tuple[int, int] | None = None,
) -> bytes:
    """Frame the one request of a sandbox: the program, how much of its output and which files are wanted.

    With `terminal`, its rows and columns, the program has a terminal instead of three streams.
    """
    variables = b"\0".join(name.encode("ascii") + b"=" + value for name, value in environment)
    header = (
        f"language {language}\ncode {len(code)}\nenvironment {len(variables)}\ntoken {token.hex()}\n"
        f"head {head}\ntail {tail}\ndeadline_ms {deadline_ms}\nseekable {int(seekable)}\nartifacts {artifacts.files}\n"
        f"artifact_bytes {artifacts.each_bytes}\nartifacts_bytes {artifacts.all_bytes}\n"
        + (f"terminal {terminal[0]} {terminal[1]}\n" if terminal else "")
        + "\n"
    ).encode("ascii")
    return _down(b"R", header + code + variables + stdin)


def encode_file(path: str) -> bytes:
    """Frame the name of a file that goes in; its content follows as `encode_data`."""
    return _down(b"F", path.encode("utf-8"))


def encode_copy(path: bytes) -> bytes:
    """Frame the name of a file of the workspace that is copied; its content follows as `encode_data`."""
    return _down(b"C", path)


def encode_copied() -> bytes:
    """Frame that the whole workspace is there."""
    return _down(b"L", b"")


def encode_data(data: bytes) -> bytes:
    """Frame the next bytes of the file that goes in."""
    return _down(b"D", data)


def encode_sent(number: int, data: bytes) -> bytes:
    """Frame bytes for one tunnelled connection of the program's."""
    return _down(b"W", _NUMBER.pack(number) + data)


def encode_sent_all(number: int) -> bytes:
    """Frame that no more bytes come for one connection."""
    return _down(b"Q", _NUMBER.pack(number))


def encode_credit(number: int, count: int) -> bytes:
    """Frame how many bytes more will be taken from one connection."""
    return _down(b"V", _NUMBER.pack(number) + _NUMBER.pack(count))


def encode_close(number: int) -> bytes:
    """Frame that one connection is to end, once the program has what was sent; no more is taken from it."""
    return _down(b"X", _NUMBER.pack(number))


def encode_size(rows: int, columns: int) -> bytes:
    """Frame how large the terminal is from now on."""
    return _down(b"T", _SIZE.pack(rows, columns))


def decode_numbered(payload: bytes) -> tuple[int, bytes]:
    """Return the connection that a frame is about, and what it says of it.

    Raises:
        ProtocolViolation: It is about none.
    """
    if len(payload) < _NUMBER.size:
        raise ProtocolViolation("a frame is about no connection")
    return _NUMBER.unpack_from(payload)[0], payload[_NUMBER.size :]


def decode_credit(rest: bytes) -> int:
    """Return how many bytes more the program's side will take.

    Raises:
        ProtocolViolation: It does not say.
    """
    if len(rest) != _NUMBER.size:
        raise ProtocolViolation("a frame says no number")
    credit: int = _NUMBER.unpack(rest)[0]
    return credit


def encode_kill() -> bytes:
    """Frame the order to end the program now and say what there is to say."""
    return _down(b"K", b"")


def _down(kind: bytes, payload: bytes) -> bytes:
    return _DOWN.pack(kind, len(payload)) + payload


def decode_hello(payload: bytes) -> str:
    """Return the Python version of the agent.

    Raises:
        ProtocolViolation: It is not a greeting of this protocol's.
    """
    fields = _fields(payload, {"protocol", "python"})
    if fields.get("protocol") != str(PROTOCOL):
        raise ProtocolViolation("the agent speaks another protocol")
    return fields.get("python", "")[:32]


def decode_end(payload: bytes) -> End:
    """Return the agent's account of the end.

    Raises:
        ProtocolViolation: It is none.
    """
    names = set(End.__slots__)
    fields = _fields(payload, names)
    reason = fields.pop("reason", "")
    if reason not in ("exited", "deadline", "killed"):
        raise ProtocolViolation("the program's end has no reason")
    numbers = {name: _number(value) for name, value in fields.items()}
    optional = {"exit_code", "signal", "oom_kills", "stdout_lines", "stderr_lines"}
    if missing := names - {"reason"} - optional - numbers.keys():
        raise ProtocolViolation(f"the program's end lacks {', '.join(sorted(missing))}")
    return End(reason=reason, **{name: numbers.get(name) for name in names - {"reason"}})  # type: ignore[arg-type]  # missing ones were refused above


class Incoming(NamedTuple):
    """A file that is about to come out."""

    path: bytes
    size: int


def decode_artifact(payload: bytes) -> Incoming:
    """Return the path, as the program chose it, and the size of a file that comes next.

    Raises:
        ProtocolViolation: It is no such announcement.
    """
    size, space, path = payload.partition(b" ")
    if not space or not path or len(path) > MAX_PATH_BYTES:
        raise ProtocolViolation("a file came without a name")
    return Incoming(path, _number(size.decode("ascii", "replace")))


Refusal = Literal[
    "link",
    "not_a_file",
    "too_deep",
    "path_too_long",
    "too_large",
    "all_too_large",
    "too_many",
    "unreadable",
    "walk_too_long",
]
"""Why the agent kept a file back."""


def decode_refusal(payload: bytes) -> tuple[Refusal, bytes]:
    """Return why a file does not come out, and its path.

    Raises:
        ProtocolViolation: It is no refusal of the agent's.
    """
    reason, _, path = payload.partition(b" ")
    for known in get_args(Refusal):
        if reason == known.encode():
            return known, path[:MAX_PATH_BYTES]
    raise ProtocolViolation("a file was refused for an unknown reason")


def decode_done(payload: bytes) -> int:
    """Return how many files the agent kept back in all.

    Raises:
        ProtocolViolation: It does not say.
    """
    return _number(_fields(payload, {"refused"}).get("refused", ""))


def decode_failed(payload: bytes) -> tuple[int, int]:
    """Return which file, counted from 1, could not be written, and the error number.

    It is 0 for the program, and beyond all files for one of the workspace's.

    Raises:
        ProtocolViolation: It does not say.
    """
    fields = _fields(payload, {"file", "errno"})
    return _number(fields.get("file", "")), _number(fields.get("errno", ""))


def _fields(payload: bytes, known: set[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    try:
        lines = payload.decode("ascii").splitlines()
    except UnicodeDecodeError:
        raise ProtocolViolation("a field is not ASCII") from None
    for line in lines:
        name, _, value = line.partition(" ")
        if name not in known or name in fields:
            raise ProtocolViolation("an unknown or repeated field came")
        fields[name] = value
    return fields


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 19 or int(text) > MAX_NUMBER:
        raise ProtocolViolation("a field is not a number")
    return int(text)


def agent_command(preload: tuple[str, ...] = (), *, egress: bool = False) -> tuple[str, ...]:
    """Return the argument vector that starts the agent in a container; it imports `preload` while it waits.

    `-I -S`: neither the environment nor the image's site packages get to run code in the agent.
    """
    options = (EGRESS,) if egress else ()
    return ("python3", "-I", "-S", "-c", _agent_source(), *options, *preload)


@cache
def _agent_source() -> str:
    return files("mcp_sandbox.guest.inside").joinpath("agent.py").read_text(encoding="utf-8")
