"""The log of receipts as files: each append goes to a partition that nobody else is writing to.

Opening the log touches nothing: the folder is made by the first call. All work on files is done in
threads: what writes in one of its own, so that a disk that hangs keeps no process from its end.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from pushlane.backends.embedded.receipt_files import Busy, Full, Partition
from pushlane.backends.ports import ReceiptLog, split_evenly
from pushlane.core.errors import Unreachable
from pushlane.settings import Settings
from pushlane.util.errors import ReceiptsGone, StorageFull
from pushlane.util.files import create_durably, sync, write_durably
from pushlane.util.threads import Threads

_PAGE_BYTES = 4 * 1024 * 1024
_PATIENCE_S = 10.0
_RETRY_S = 0.002
_PRIVATE = 0o600

T = TypeVar("T")

log = logging.getLogger("pushlane.receipts")


class EmbeddedReceiptLog(ReceiptLog):
    def __init__(self, settings: Settings) -> None:
        self._folder = settings.data_dir / "receipts"
        self._settings = settings
        self._next = secrets.randbelow(settings.receipts_partitions)
        self._has_told = False
        self._making = threading.Lock()
        self._writer = Threads(1, "pushlane-receipts")

    async def append(self, bodies: Sequence[bytes]) -> None:
        if bodies:
            await self._writer.run(self._translated(lambda: self._append(bodies)))

    async def first(self) -> list[str]:
        return await self._in_thread(lambda: _shown(part.first() for part in self._partitions))

    async def since(self, at_ms: int) -> list[str]:
        return await self._in_thread(
            lambda: _shown(part.since(at_ms, _PATIENCE_S) for part in self._partitions)
        )

    async def committed(self) -> list[str] | None:
        found = await self._in_thread(self._committed)
        return None if found is None else _shown(found)

    async def advance(self, start: Sequence[str], most: int | None = None) -> list[str]:
        return await self._in_thread(lambda: _shown(self._advance(_read(start), most)))

    async def kept(self, positions: Sequence[str]) -> list[str]:
        return await self._in_thread(lambda: _shown(self._kept(_read(positions))))

    async def read(self, partition: int, start: str, end: str) -> AsyncIterator[list[bytes]]:
        position, last = int(start), int(end)
        part = await self._in_thread(lambda: self._partitions[partition])
        while position < last:
            page = partial(part.page, position, last, _PAGE_BYTES)
            bodies, position = await self._in_thread(page)
            if not bodies:
                raise ReceiptsGone(f"the log of receipts in {self._folder} ends before {end}")
            yield bodies

    async def commit(self, positions: Sequence[str]) -> None:
        await self._in_thread(lambda: self._commit(_read(positions)))

    async def lag(self, positions: Sequence[str]) -> int:
        return await self._in_thread(lambda: self._lag(_read(positions)))

    async def secret(self) -> bytes:
        return await self._writer.run(self._translated(self._secret))

    async def close(self) -> None:
        self._writer.close()
        if "_made" in self.__dict__ and not self._writer.hung:
            for part in self._partitions:
                part.close()

    @property
    def _partitions(self) -> list[Partition]:
        """The partitions that the log was made with; a new log has as many as the settings say."""
        with self._making:
            return self._made

    @cached_property
    def _made(self) -> list[Partition]:
        path = self._folder / "partitions"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            sync(self._folder.parent)
            _make(path, b"%d" % self._settings.receipts_partitions)
        count = int(path.read_bytes())
        most_bytes = self._settings.receipts_max_bytes // count
        return [
            Partition(
                self._folder / str(n), self._settings, most_bytes, partial(self._committed_of, n)
            )
            for n in range(count)
        ]

    def _append(self, bodies: Sequence[bytes]) -> None:
        deadline_s = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline_s:
            if self._append_to_any(bodies):
                return
            time.sleep(_RETRY_S)
        raise Unreachable(
            f"the log of receipts in {self._folder} is locked by another process; resume or end "
            "a process that is suspended"
        )

    def _append_to_any(self, bodies: Sequence[bytes]) -> bool:
        """Append to the next partition that is free. False when none was free."""
        count = len(self._partitions)
        first = self._next % count
        self._next += 1
        full = 0
        for index in ((first + step) % count for step in range(count)):
            try:
                self._tell(self._partitions[index].append(bodies))
            except Busy:
                continue
            except Full:
                full += 1
                continue
            return True
        if full == count:
            raise StorageFull(
                f"the log of receipts in {self._folder} is full, and nothing has read it: run "
                "`pushlane pipeline run`, raise receipts_max_bytes, or set receipts=on"
            )
        return False

    def _tell(self, dropped: int) -> None:
        """Warn, once: a log that nobody reads is no fault."""
        if dropped and not self._has_told:
            self._has_told = True
            log.warning(
                "the log of receipts has reached receipts_max_bytes: its oldest receipts are "
                "dropped, and no report has counted them; run `pushlane pipeline run`, or set "
                "receipts=off",
                extra={"action": "receipts_dropped"},
            )

    def _advance(self, start: list[int], most: int | None) -> list[int]:
        found = self._ends(start, most)
        counts = [len(ends) for ends in found]
        shares = counts if most is None else split_evenly(counts, most)
        return [
            ends[share - 1] if share else here
            for ends, share, here in zip(found, shares, start, strict=True)
        ]

    def _kept(self, positions: list[int]) -> list[int]:
        if len(positions) != len(self._partitions):  # of a log that was here before
            return [part.first() for part in self._partitions]
        rows = zip(self._partitions, positions, strict=True)
        return [part.kept(position, _PATIENCE_S) for part, position in rows]

    def _lag(self, positions: list[int]) -> int:
        rows = zip(self._partitions, self._kept(positions), strict=True)
        return sum(part.count(here, self._end_of(part, here)) for part, here in rows)

    def _ends(self, start: list[int], most: int | None) -> list[list[int]]:
        """Return for each partition the positions after the records behind `start`."""
        return [
            part.ends(here, self._end_of(part, here), most)
            for part, here in zip(self._partitions, start, strict=True)
        ]

    def _end_of(self, part: Partition, start: int) -> int:
        try:
            end = part.end(_PATIENCE_S)
        except Busy:  # somebody stands still in the middle of an append: there is nothing new
            return start
        if start > end:
            raise ReceiptsGone(
                f"the log of receipts in {self._folder} ends at {end}, before {start}: it was "
                "removed or replaced"
            )
        return end

    def _committed(self) -> list[int] | None:
        try:
            return _read(json.loads(self._committed_path.read_bytes()))
        except FileNotFoundError:
            return None

    def _committed_of(self, partition: int) -> int | None:
        found = self._committed()
        return None if found is None else found[partition]

    def _commit(self, positions: list[int]) -> None:
        write_durably(self._committed_path, json.dumps(_shown(positions)).encode(), _PRIVATE)
        for part in self._partitions:
            try:
                part.tidy(wait_s=0)
            except Busy:  # the next commit does it
                continue

    @property
    def _committed_path(self) -> Path:
        return self._folder / "committed.json"

    def _secret(self) -> bytes:
        path = self._folder / "secret"
        if not path.exists():
            _make(path, secrets.token_bytes(16))
        return path.read_bytes()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(self._translated(work))

    def _translated(self, work: Callable[[], T]) -> Callable[[], T]:
        def run() -> T:
            with _translated(self._folder):
                self._partitions  # noqa: B018 - with the first of them the folder is made
                return work()

        return run


def _make(path: Path, content: bytes) -> None:
    """Make the file; when another process was first, its content stays."""
    with suppress(FileExistsError):
        create_durably(path, content, _PRIVATE)


def _shown(positions: Iterator[int] | list[int]) -> list[str]:
    return [str(position) for position in positions]


def _read(positions: Sequence[str]) -> list[int]:
    return [int(position) for position in positions]


@contextmanager
def _translated(folder: Path) -> Iterator[None]:
    """Raise Unreachable, naming the folder, for errors of its files."""
    try:
        yield
    except Busy as error:
        raise Unreachable(
            f"the log of receipts in {folder} is locked by another process"
        ) from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise Unreachable(
            f"the log of receipts in {folder} cannot be used: {reason}; check the folder, its "
            "permissions and the disk, or set receipts=off"
        ) from error
