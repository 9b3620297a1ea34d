"""The output of one run on its way from the agent to whoever keeps it or watches: secrets go, bounds hold.

Above: `run`, `executor`. Below: `capture`, `redact`. This is the one place where a program's output comes in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp_sandbox.capture import Capture
from mcp_sandbox.redact import NO_SECRETS, RedactedStream, Redactor

if TYPE_CHECKING:
    from mcp_sandbox.guest.protocol import End
    from mcp_sandbox.guest.session import OutputSink, Program, Stream


class Streams:
    """Both output streams of one run, free of secrets, kept within bounds and shown to whoever watches."""

    def __init__(self, program: Program, watcher: OutputSink | None, redactor: Redactor = NO_SECRETS) -> None:
        self.redactor = redactor
        self._stdout = _Stream("stdout", program, watcher, redactor)
        self._stderr = _Stream("stderr", program, watcher, redactor)
        self.stdout = self._stdout.capture
        self.stderr = self._stderr.capture

    def write(self, stream: Stream, data: bytes) -> None:
        """Take the next bytes of a stream."""
        (self._stdout if stream == "stdout" else self._stderr).write(data)

    def write_tail(self, stream: Stream, data: bytes) -> None:
        """Take bytes of the end of a stream, which may follow a gap."""
        (self._stdout if stream == "stdout" else self._stderr).write_tail(data)

    def settle(self, end: End | None) -> None:
        """Take the agent's account of the end; None where there is none to trust."""
        whole = end is not None and end.reason == "exited"
        self._stdout.settle(*((end.stdout, end.stdout_lines) if end else (None, None)), whole=whole)
        self._stderr.settle(*((end.stderr, end.stderr_lines) if end else (None, None)), whole=whole)


class _Stream:
    """One output stream. Its tail waits for the account of the end where there are secrets to be kept out.

    Only that tells whether the tail follows at once, so that a secret may be whole across the two, or after a gap.
    """

    def __init__(
        self, name: Stream, program: Program, watcher: OutputSink | None, redactor: Redactor
    ) -> None:
        self.capture = Capture(program.head_bytes, program.tail_bytes)
        self._name: Stream = name
        self._watcher = watcher
        self._redactor = redactor
        self._redacted = RedactedStream(redactor)
        self._waiting = bytearray()
        self._most_waiting = program.tail_bytes
        self._torn = False
        self._came = self._passed = 0
        """Bytes of the stream as it came, and as it was passed on."""

    def write(self, data: bytes) -> None:
        self._came += len(data)
        self._pass_on(self._redacted.feed(data))

    def write_tail(self, data: bytes) -> None:
        self._came += len(data)
        if not self._redactor.longest:
            self._pass_on_tail(data)
            return
        self._waiting += data
        if len(self._waiting) > self._most_waiting:  # it is not our agent that speaks
            del self._waiting[: len(self._waiting) - self._most_waiting]
            self._torn = True

    def settle(self, total: int | None, lines: int | None, *, whole: bool) -> None:
        tail = bytes(self._waiting)
        self._waiting.clear()
        if self._redactor.longest:
            if total == self._came and not self._torn:
                self._pass_on(self._redacted.feed(tail))
                self._pass_on(self._redacted.end(cut=not whole))
            else:
                self._pass_on(self._redacted.end(cut=True))
                tail = self._redactor.cut_start(self._redactor(tail))
                self._pass_on_tail(tail if whole else self._redactor.cut_end(tail))
        if total is not None:
            # The stream that is kept and counted here is the one without secrets, longer or shorter.
            self.capture.settle(max(total - self._came, 0) + self._passed, lines)

    def _pass_on(self, data: bytes) -> None:
        self._passed += len(data)
        self.capture.write(data)
        if self._watcher and data:
            self._watcher.write(self._name, data)

    def _pass_on_tail(self, data: bytes) -> None:
        self._passed += len(data)
        self.capture.write_tail(data)
        if self._watcher and data:
            self._watcher.write_tail(self._name, data)
