"""Takes the values of secrets out of bytes on their way out, across chunk boundaries.

Above: `executor`. Below: nothing. A courtesy against accidents: a program that holds a secret can always write it
in a form that nobody looks for. The forms that are looked for are those of `forms_of`, and no others.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

from mcp_sandbox.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MIN_BYTES = 6
"""Shortest secret: a shorter one would be found, and taken out, all over ordinary output."""
MIN_LINE_BYTES = 8
"""Shortest line of a multi-line secret that is looked for by itself."""
MIN_PART = 4
"""Shortest piece of a secret that is taken out where output was cut in the middle of it."""


class Redactor:
    """Knows the forms of some secrets, and what to write in their place."""

    def __init__(self, secrets: Mapping[str, bytes]) -> None:
        self._names: dict[bytes, str] = {}
        for name, value in secrets.items():
            if len(value) < MIN_BYTES:
                raise ConfigError(
                    f"the secret {name} has fewer than {MIN_BYTES} bytes, so it could not be kept out of output.",
                    next_step="Use a longer one.",
                )
            for form in forms_of(value):
                self._names.setdefault(form, name)
        # Longest first: of secrets that contain each other, the whole one goes.
        self._forms = sorted(self._names, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._forms))) if self._forms else None
        self.longest = len(self._forms[0]) if self._forms else 0

    def __call__(self, data: bytes) -> bytes:
        """Return data with every form of every secret replaced by the secret's name."""
        if self._pattern is None:
            return data
        return self._pattern.sub(lambda found: self._mark(found[0]), data)

    def text(self, text: str) -> str:
        """Return text likewise."""
        if self._pattern is None:
            return text
        return self(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def json(self, value: object) -> object:
        """Return JSON with every text in it likewise."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self.json(item) for key, item in value.items()}
        return [self.json(item) for item in value] if isinstance(value, list) else value

    def found_in(self, data: bytes) -> bool:
        """Tell whether any form of any secret is in there."""
        return self.name_in(data) is not None

    def name_in(self, data: bytes) -> str | None:
        """Return the name of the first secret that is in there in any form; None where none is."""
        found = self._pattern.search(data) if self._pattern else None
        return self._names[found[0]] if found else None

    def cut_end(self, data: bytes) -> bytes:
        """Return data whose end was cut off, without the beginning of a secret that may stand there."""
        for length in range(min(self.longest - 1, len(data)), MIN_PART - 1, -1):
            for form in self._forms:
                if len(form) > length and data.endswith(form[:length]):
                    return data[:-length] + self._mark(form)
        return data

    def cut_start(self, data: bytes) -> bytes:
        """Return data whose start was cut off, without the end of a secret that may stand there."""
        for length in range(min(self.longest - 1, len(data)), MIN_PART - 1, -1):
            for form in self._forms:
                if len(form) > length and data.startswith(form[-length:]):
                    return self._mark(form) + data[length:]
        return data

    def safe_up_to(self, data: bytes) -> int:
        """Return where the part of `data` ends that bytes to come cannot make a part of a secret."""
        cut = len(data)
        for length in range(min(self.longest - 1, len(data)), 0, -1):
            tail = data[-length:]
            if any(len(form) > length and form.startswith(tail) for form in self._forms):
                cut = len(data) - length
                break
        # A secret that is whole, and ends behind the cut, may still be the beginning of a longer one.
        for found in self._pattern.finditer(data) if self._pattern else ():
            if found.start() < cut < found.end():
                cut = found.start()
        return cut

    def _mark(self, form: bytes) -> bytes:
        return f"[secret {self._names[form]}]".encode()


class RedactedStream:
    """One stream of bytes with secrets taken out: what may be the beginning of one waits for the rest."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Return what of the stream so far is safe to pass on."""
        if not self._redactor.longest:
            return data
        raw = self._held + data
        cut = self._redactor.safe_up_to(raw)
        self._held = raw[cut:]
        return self._redactor(raw[:cut])

    def end(self, *, cut: bool) -> bytes:
        """Return the rest; where the stream was cut here, without the beginning of a secret."""
        held, self._held = self._redactor(self._held), b""
        return self._redactor.cut_end(held) if cut else held


class SecretSearch:
    """Looks for secrets in one content that comes in pieces, of which it keeps no more than a secret's length."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._last = b""

    def feed(self, data: bytes) -> str | None:
        """Take the next bytes; return the name of a secret that ends in them, None where none does."""
        overlap = self._redactor.longest - 1
        if overlap < 0:
            return None
        seen = self._last + data
        self._last = seen[-overlap:]
        return self._redactor.name_in(seen)


NO_SECRETS = Redactor({})
"""Finds nothing."""


def forms_of(secret: bytes) -> Iterator[bytes]:
    """Yield the forms in which a secret is looked for: as it is, by lines, in one case, encoded, escaped, reversed."""
    parts = [secret, secret.strip()]
    lines = secret.splitlines()
    if len(lines) > 1:
        parts += [line for line in lines if len(line) >= MIN_LINE_BYTES]
    for part in parts:
        if len(part) < MIN_BYTES:
            continue
        yield part
        yield part[::-1]
        yield part.hex().encode()
        yield part.hex().upper().encode()
        yield from _base64_forms(part)
        text = part.decode("utf-8", "surrogateescape")
        yield text.lower().encode("utf-8", "surrogateescape")  # as host names are written down
        yield text.upper().encode("utf-8", "surrogateescape")
        yield text[::-1].encode("utf-8", "surrogateescape")
        for escaped in _escaped(text, part):
            yield escaped.encode("utf-8", "surrogateescape")


def _base64_forms(part: bytes) -> Iterator[bytes]:
    """Yield what of a secret is the same in the base64 of anything that contains it, at each alignment."""
    for offset in range(3):
        encoded = base64.b64encode(bytes(offset) + part)
        # Characters at both ends mix in neighbouring bytes: what is left is the secret's alone.
        first = -(-offset * 8 // 6)
        last = (offset + len(part)) * 8 // 6
        core = encoded[first:last]
        if len(core) >= MIN_BYTES:
            yield core
            yield core.replace(b"+", b"-").replace(b"/", b"_")


def _escaped(text: str, part: bytes) -> Iterator[str]:
    """Yield how JSON, Python, URLs and shells write a secret."""
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield repr(text)[1:-1]  # an exception's message, often
    yield repr(part)[2:-1]
    yield quote(part, safe="")
    yield quote(part)
    yield quote_plus(part)
    yield shlex.quote(text)
