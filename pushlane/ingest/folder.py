"""A folder of JSON Lines as a source: a file is a partition, the number of a line its offset.

Files may grow. A line counts once its end is there. Whoever has the lease of a file reads it.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pushlane.backends.ports import Lease
from pushlane.core.errors import BadInput, Unreachable
from pushlane.ingest.record import Record
from pushlane.ingest.source import Given, Receiver
from pushlane.util.retrying import Sleep

_HELD_S = 12.0
_LOOK_EVERY_S = 0.25
_BLOCK = 1 << 20
_LONGEST_LINE = 16 << 20


@dataclass(eq=False)
class _File:
    """A file that is read: behind `place` bytes is the line of number `offset`.

    `counted` has how many lines were counted so far, and in how many bytes.
    """

    path: Path
    offset: int = 0
    place: int = 0
    counted: tuple[int, int] = (0, 0)
    is_paused: bool = False


@dataclass(eq=False)
class FolderSource:
    """The files of a folder whose name ends in `.jsonl`."""

    folder: Path
    lease: Lease
    stream: str
    sleep: Sleep = asyncio.sleep
    clock_s: Callable[[], float] = time.monotonic
    holder: str = field(default_factory=lambda: secrets.token_hex(8))

    trouble = ""

    def __post_init__(self) -> None:
        self.name = str(self.folder)
        self._files: dict[str, _File] = {}
        self._seeks: dict[str, int] = {}
        self._closed = asyncio.Event()
        self._renew_at_s = 0.0

    async def run(self, receiver: Receiver) -> None:
        """Read until `close`. Raises BadInput for no folder, and what the receiver raises."""
        try:
            while not self._closed.is_set():
                await self._look(receiver)
                if not await self._read_all(receiver):
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_LOOK_EVERY_S):
                            await self._closed.wait()
        finally:
            await receiver.let_go(list(self._files))
            for name in self._files:
                with suppress(Unreachable):  # it ends by itself
                    await self.lease.release(self._lease_of(name), self.holder)
            self._files.clear()

    def _lease_of(self, name: str) -> str:
        return f"ingest-{self.stream}-{name}"

    async def _look(self, receiver: Receiver) -> None:
        """Take over one file more, if there is one that nobody reads; hold on to the others."""
        now_s = self.clock_s()
        if now_s >= self._renew_at_s:
            self._renew_at_s = now_s + _HELD_S / 3
            for name in list(self._files):
                with suppress(Unreachable):
                    if not await self._acquired(name):
                        del self._files[name]
                        receiver.lost([name])
        for path in await asyncio.to_thread(self._found):
            if path.name not in self._files and await self._acquired(path.name):
                await self._open(path, receiver)
                return

    def _found(self) -> list[Path]:
        if not self.folder.is_dir():
            raise BadInput(f"{self.folder} is not a folder; give one with files that end in .jsonl")
        return sorted(self.folder.glob("*.jsonl"))

    async def _acquired(self, name: str) -> bool:
        lease = self._lease_of(name)
        return await self.lease.acquire(lease, self.holder, _HELD_S) is not None

    async def _open(self, path: Path, receiver: Receiver) -> None:
        source_id, high = await asyncio.to_thread(_look_at, path)
        if not high:  # it is not known by its first line yet
            await self.lease.release(self._lease_of(path.name), self.holder)
            return
        given = Given(path.name, source_id, 0, high)
        starts = await receiver.given([given])
        file = self._files[path.name] = _File(path)
        await asyncio.to_thread(_go_to, file, starts[path.name])

    async def _read_all(self, receiver: Receiver) -> bool:
        """Give what is new in all files; return whether there was any."""
        for name, offset in list(self._seeks.items()):
            del self._seeks[name]
            if file := self._files.get(name):
                await asyncio.to_thread(_go_to, file, offset)
                receiver.sought(name)
        found = False
        for name, file in list(self._files.items()):
            if file.is_paused:
                continue
            records = await asyncio.to_thread(_read, file)
            if records and name not in self._seeks:
                found = True
                receiver.take(name, records)
        return found

    def pause(self, partition: str) -> None:
        if file := self._files.get(partition):
            file.is_paused = True

    def resume(self, partition: str) -> None:
        if file := self._files.get(partition):
            file.is_paused = False

    def seek(self, partition: str, offset: int) -> None:
        self._seeks[partition] = offset

    async def commit(self, offsets: Mapping[str, int]) -> None:
        """Do nothing: what is kept of each partition is all there is."""

    async def offset_at(self, partition: str, at_ms: int) -> int:
        raise BadInput("lines of a file have no time; give the number of a line, from 0")

    async def ends(self) -> Mapping[str, int]:
        return {name: await asyncio.to_thread(_end_of, f) for name, f in list(self._files.items())}

    def close(self) -> None:
        self._closed.set()


def _look_at(path: Path) -> tuple[str, int]:
    """Return what tells a file from another of its name, and how many lines it has."""
    with path.open("rb") as file:
        first = file.readline(_LONGEST_LINE)
        lines = 1 if first.endswith(b"\n") else 0
        while block := file.read(_BLOCK):
            lines += block.count(b"\n")
    return hashlib.sha256(first).hexdigest()[:16], lines


def _end_of(file: _File) -> int:
    """Return how many lines a file has by now; only what is new of it is read.

    Two threads may do so at once.
    """
    lines, place = file.counted
    with file.path.open("rb") as reading:
        reading.seek(place)
        while block := reading.read(_BLOCK):
            lines += block.count(b"\n")
            place += len(block)
    file.counted = lines, place
    return lines


def _go_to(file: _File, offset: int) -> None:
    """Go on with the line of this number, or at the end where there are not as many."""
    file.place = file.offset = 0
    with file.path.open("rb") as reading:
        while file.offset < offset and (line := reading.readline()).endswith(b"\n"):
            file.offset += 1
            file.place += len(line)


def _read(file: _File) -> list[Record]:
    """Return the next whole lines. Raises BadInput for one that is too long."""
    with file.path.open("rb") as reading:
        reading.seek(file.place)
        block = reading.read(_BLOCK)
        while block and b"\n" not in block and len(block) < _LONGEST_LINE:
            more = reading.read(_BLOCK)
            if not more:
                return []
            block += more
    whole = block[: block.rfind(b"\n") + 1]
    if block and not whole and len(block) >= _LONGEST_LINE:
        raise BadInput(f"line {file.offset} of {file.path} has over {_LONGEST_LINE:,} bytes")
    lines = whole.split(b"\n")[:-1]
    first = file.offset
    file.offset += len(lines)
    file.place += len(whole)
    name = file.path.name
    return [Record(name, first + number, line or None) for number, line in enumerate(lines)]
