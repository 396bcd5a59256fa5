"""Sinks that need no service: they drop pushes, print them, or append them to a file.

`null` says that it delivered: to measure everything but the sink. `print` is for trying things out:
whoever reads its output reads recipients and content. `log` writes neither, so that its file can be
shared as a record of what went out when.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from pushlane.core.errors import BadInput
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Arrival, Outcome
from pushlane.core.task import now_ms
from pushlane.model.targets import PlainTarget, file_target


class NullOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """It has none."""

    def open(self, slots: int, timeout_s: float, retry_timeouts: bool) -> NullSink:
        return NullSink()

    def target(self) -> PlainTarget:
        return PlainTarget("null", delivers=False)


class NullSink:
    name = "null"
    batch_size = 256
    mixes_tasks = True
    hosts_code = False

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        return [DELIVERED] * len(batch)

    async def close(self) -> None:
        return


_LONGEST = 500


class PrintOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """It has none."""

    def open(self, slots: int, timeout_s: float, retry_timeouts: bool) -> PrintSink:
        return PrintSink()

    def target(self) -> PlainTarget:
        return PlainTarget("print", delivers=False)


class PrintSink:
    """Writes from a thread, one batch at a time, so that a slow reader holds up nothing else."""

    name = "print"
    batch_size = 64
    mixes_tasks = True
    hosts_code = False

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        text = "".join(f"{_line(delivery)}\n" for delivery in batch)
        try:
            async with self._turn:
                await asyncio.to_thread(_print, text)
        except (OSError, ValueError):  # ValueError: it was closed by this process
            reason = "standard output is closed"
            return [Outcome.retry(reason, arrival=Arrival.REFUSED)] * len(batch)
        return [DELIVERED] * len(batch)

    async def close(self) -> None:
        return


def _print(text: str) -> None:
    out = sys.stdout
    out.buffer.write(text.encode(out.encoding or "utf-8", "backslashreplace"))
    out.buffer.flush()


def _line(delivery: Delivery) -> str:
    push_id, to = delivery.push.push_id, delivery.address or delivery.push.recipient
    line = f"{delivery.level:<6}  {push_id}  {to}  {_content(delivery)}"
    shown = "".join(sign if sign.isprintable() else " " for sign in line[:_LONGEST])
    return f"{shown}…" if len(line) > _LONGEST else shown


def _content(delivery: Delivery) -> str:
    """Return title and body, and what else is sent as JSON."""
    push = delivery.push
    text = ": ".join(text for text in (push.title, push.body) if text)
    sent = {"data": push.data, "payload": delivery.payload}
    more = {name: value for name, value in sent.items() if value}
    if not more:
        return text
    return f"{text}  {msgspec.json.encode(more).decode()}".lstrip()


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
    """Several processes may append to one file: each batch is one write, in its order.

    Raises BadInput when the file cannot be opened for appending.
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
        lines = self._encode(
            [
                _Line(one.push.task_id, one.push.seq, one.push.attempt, one.level, at_ms)
                for one in batch
            ]
        )
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
        """Return how many bytes were written. A line left torn is ended by the next call."""
        start = b"\n" if self._torn else b""
        written = os.write(self._file, start + lines) - len(start)
        if written >= 0:
            self._torn = not lines[:written].endswith(b"\n") and written > 0
        return max(written, 0)


def _unwritten(error: OSError) -> Outcome:
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    why = "disk full" if is_full else error.strerror
    return Outcome.retry(f"log file: {why}", arrival=Arrival.REFUSED)
