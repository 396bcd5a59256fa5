"""Appends a JSON line a push to a file: task, seq, attempt, level and when.

Lines stand in the order of the deliveries. It never writes a recipient or content, so the file can
be shared as a record of what went out when.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pushlane.core.errors import BadInput
from pushlane.core.push import DELIVERED, Arrival, Outcome
from pushlane.core.task import now_ms
from pushlane.lanes.ports import Delivery
from pushlane.model.targets import PlainTarget, file_target


class _Line(msgspec.Struct, gc=False):
    task: str
    seq: int
    attempt: int
    level: str
    at_ms: int


class LogOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a log: the file that is appended to."""

    path: str

    def open(self, slots: int, timeout_s: float, retry_timeouts: bool) -> LogSink:
        """Return the sink. Raises BadInput when the file cannot be appended to."""
        return LogSink(Path(self.path))

    def target(self) -> PlainTarget:
        return file_target("log", self.path)


class LogSink:
    """Several processes may append to one file: each batch is one write.

    Raises:
        BadInput: the file cannot be opened for appending.
    """

    name = "log"
    batch_size = 64
    mixes_tasks = True
    hosts_code = False

    def __init__(self, path: Path) -> None:
        self._encode = msgspec.json.Encoder().encode_lines
        self._torn = False
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise BadInput(f"log sink: {path} cannot be opened: {error.strerror}") from error

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        at_ms = now_ms()
        lines = self._encode([_line(delivery, at_ms) for delivery in batch])
        try:
            written = self._append(lines)
        except OSError as error:
            return [_unwritten(error)] * len(batch)
        if written == len(lines):
            return [DELIVERED] * len(batch)
        whole = lines.count(b"\n", 0, written)
        rest = _unwritten(OSError(errno.ENOSPC, ""))
        return [DELIVERED] * whole + [rest] * (len(batch) - whole)

    async def close(self) -> None:
        os.close(self._file)

    def _append(self, lines: bytes) -> int:
        """How many bytes were written. A line left torn is ended by the next call."""
        start = b"\n" if self._torn else b""
        written = os.write(self._file, start + lines) - len(start)
        if written >= 0:
            self._torn = not lines[:written].endswith(b"\n") and written > 0
        return max(written, 0)


def _line(delivery: Delivery, at_ms: int) -> _Line:
    push = delivery.push
    return _Line(push.task_id, push.seq, push.attempt, delivery.level, at_ms)


def _unwritten(error: OSError) -> Outcome:
    return Outcome.retry(_reason(error), arrival=Arrival.REFUSED)


def _reason(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "log file: disk full"
    return f"log file: {error.strerror}"
