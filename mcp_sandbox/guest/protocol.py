"""Frames between the host side and the agent: what is sent, and how hostile bytes become values.

Above: `guest.session`. Below: nothing. The other half is `guest/inside/agent.py`.

    up    token (16 bytes) · kind (1) · length (4, big endian) · payload      agent → host
    down                     kind (1) · length (4, big endian) · payload      host → agent

Every byte from inside is hostile until it parses: lengths are bounded before anything is stored, kinds and
field names are closed sets, numbers are bounded, and nothing from inside chooses a type or a path. A frame
without the token was not written by the agent; it ends the run.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import Literal

PROTOCOL = 1
TOKEN_BYTES = 16
MAX_PAYLOAD = 64 << 10
"""Largest payload from inside, in bytes."""
MAX_NUMBER = 1 << 62

_UP = struct.Struct(f">{TOKEN_BYTES}scI")
_DOWN = struct.Struct(">cI")
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


class FrameReader:
    """Cuts a stream of bytes into frames, and refuses all that the agent cannot have written."""

    def __init__(self, token: bytes) -> None:
        self._token = token
        self._buffer = bytearray()
        self._greeted = False

    def feed(self, data: bytes) -> list[Frame]:
        """Take bytes as they came and return the frames that are whole now.

        Raises:
            ProtocolViolation: They are no frames of our agent's.
        """
        self._buffer += data
        frames: list[Frame] = []
        position = 0
        while len(self._buffer) - position >= _UP.size:
            token, kind, length = _UP.unpack_from(self._buffer, position)
            frame_kind = self._check(token, kind, length)
            start = position + _UP.size
            if len(self._buffer) - start < length:
                break
            position = start + length
            self._greeted = True
            frames.append(Frame(frame_kind, bytes(self._buffer[start:position])))
        del self._buffer[:position]
        return frames

    def _check(self, token: bytes, kind: bytes, length: int) -> Kind:
        # The greeting is sent before the agent has the token, when no code of the program's has run.
        if not hmac.compare_digest(token, self._token if self._greeted else _NO_TOKEN):
            raise ProtocolViolation("a frame came without the run's token")
        try:
            known = Kind(kind)
        except ValueError:
            raise ProtocolViolation("a frame of an unknown kind came") from None
        if (known is Kind.HELLO) is self._greeted:
            raise ProtocolViolation("a frame came out of turn")
        if length > MAX_PAYLOAD:
            raise ProtocolViolation("a frame came that is larger than any of the agent's")
        return known


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
) -> bytes:
    """Frame the one request of a sandbox: the program and how much of its output is wanted."""
    header = (
        f"language {language}\ncode {len(code)}\ntoken {token.hex()}\nhead {head}\ntail {tail}\n"
        f"deadline_ms {deadline_ms}\nseekable {int(seekable)}\n\n"
    ).encode("ascii")
    return _down(b"R", header + code + stdin)


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
    optional = {"exit_code", "signal", "oom_kills"}
    if missing := names - {"reason"} - optional - numbers.keys():
        raise ProtocolViolation(f"the program's end lacks {', '.join(sorted(missing))}")
    return End(reason=reason, **{name: numbers.get(name) for name in names - {"reason"}})  # type: ignore[arg-type]  # missing ones were refused above


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


@cache
def agent_command() -> tuple[str, ...]:
    """Return the argument vector that starts the agent in a container.

    `-I -S`: neither the environment nor the image's site packages get to run code in the agent.
    """
    source = files("mcp_sandbox.guest.inside").joinpath("agent.py").read_text(encoding="utf-8")
    return ("python3", "-I", "-S", "-c", source)
