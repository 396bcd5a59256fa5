"""Records that are kept, in memory: suppressions, dead addresses and receipts."""

from __future__ import annotations

import secrets
from bisect import bisect_left
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import count
from typing import TypeVar

from pushlane.backends.memory.shared import LockAndClock, MemoryPort, one_step
from pushlane.backends.ports import split_evenly
from pushlane.model.recipients import (
    AddressDeath,
    DeadAddress,
    DeadAddressPage,
    DeadAddressQuery,
    SuppressionScope,
)
from pushlane.settings import Settings
from pushlane.util.errors import ReceiptsGone, StorageFull

V = TypeVar("V")

_PAGE = 500
_SERIAL_BITS = 40


class MemorySuppressions(MemoryPort):
    """See `guard_ports.Suppressions`."""

    def __init__(self, shared: LockAndClock) -> None:
        super().__init__(shared)
        self.by_scope: dict[SuppressionScope, set[int]] = defaultdict(set)

    @one_step
    def add(self, scope: SuppressionScope, hashes: Sequence[int]) -> int:
        new = set(hashes) - self.by_scope[scope]
        self.by_scope[scope] |= new
        return len(new)

    @one_step
    def remove(self, scope: SuppressionScope, hashes: Sequence[int]) -> int:
        there = set(hashes) & self.by_scope[scope]
        self.by_scope[scope] -= there
        return len(there)

    @one_step
    def clear(self, scope: SuppressionScope) -> None:
        self.by_scope.pop(scope, None)

    @one_step
    def counts(self) -> dict[SuppressionScope, int]:
        return {scope: len(some) for scope, some in self.by_scope.items() if some}

    @one_step
    def find(
        self, asked: Mapping[SuppressionScope, Sequence[int]]
    ) -> dict[SuppressionScope, list[int]]:
        return {
            scope: [one for one in hashes if one in self.by_scope.get(scope, ())]
            for scope, hashes in asked.items()
        }


_Address = tuple[str, int]  # a sink and a hash


class MemoryDeadAddresses(MemoryPort):
    """See `guard_ports.DeadAddresses`. A record's number is its time and a serial number."""

    def __init__(self, shared: LockAndClock, suppressions: MemorySuppressions) -> None:
        super().__init__(shared)
        self._suppressed = suppressions.by_scope
        self._records: dict[_Address, tuple[int, DeadAddress]] = {}
        self._registered: dict[_Address, int] = {}  # when, in Unix ms
        self._serials = count(1)

    @one_step
    def record(self, sink: str, deaths: Sequence[AddressDeath], at_ms: int) -> list[int]:
        dead = [
            one for one in deaths if one.died_at_ms > self._registered.get((sink, one.hash), -1)
        ]
        self._suppressed[SuppressionScope("sink", sink)] |= {one.hash for one in dead}
        new = [one for one in dead if (sink, one.hash) not in self._records]
        for one in new:
            number = (at_ms << _SERIAL_BITS) + next(self._serials)
            record = DeadAddress(sink, one.hash, at_ms, *one[1:])
            self._records[sink, one.hash] = (number, record)
        return [one.hash for one in new]

    @one_step
    def register(self, sink: str, hashes: Sequence[int], at_ms: int) -> int:
        for one in hashes:
            self._records.pop((sink, one), None)
            self._registered[sink, one] = max(at_ms, self._registered.get((sink, one), 0))
        suppressed = self._suppressed[SuppressionScope("sink", sink)]
        there = suppressed & set(hashes)
        suppressed -= there
        return len(there)

    @one_step
    def page(self, query: DeadAddressQuery, after: int = 0) -> DeadAddressPage:
        rows = sorted(
            (number, one)
            for number, one in self._records.values()
            if one.recorded_at_ms >= query.since_ms and query.sink in ("", one.sink)
        )
        if query.newest_first:
            rows = [row for row in reversed(rows) if not after or row[0] < after]
        else:
            rows = [row for row in rows if row[0] > after]
        page = rows[:_PAGE]
        return DeadAddressPage([one for _, one in page], page[-1][0] if len(page) == _PAGE else 0)

    @one_step
    def forget(self, before_ms: int, most: int) -> int:
        records = {place: number >> _SERIAL_BITS for place, (number, _) in self._records.items()}
        return _drop_oldest(self._records, records, before_ms, most) + _drop_oldest(
            self._registered, self._registered, before_ms, most
        )


def _drop_oldest(
    rows: dict[_Address, V], at_ms: Mapping[_Address, int], before_ms: int, most: int
) -> int:
    """Drop the oldest rows from before then, at most so many; return how many."""
    old = sorted((one for one in rows if at_ms[one] < before_ms), key=at_ms.__getitem__)[:most]
    for one in old:
        del rows[one]
    return len(old)


class _Partition:
    """Bodies in their order. The position of one is how many came before it, kept or not."""

    def __init__(self) -> None:
        self.first = 0
        self.receipts: list[tuple[int, bytes]] = []  # each with its time (Unix ms)
        self.bytes = 0

    @property
    def end(self) -> int:
        return self.first + len(self.receipts)

    def append(self, at_ms: int, bodies: Sequence[bytes]) -> None:
        self.receipts += [(at_ms, body) for body in bodies]
        self.bytes += sum(map(len, bodies))

    def drop_oldest(self) -> None:
        self.bytes -= len(self.receipts.pop(0)[1])
        self.first += 1

    def kept(self, position: int) -> int:
        return position if self.first <= position <= self.end else self.first

    def since(self, at_ms: int) -> int:
        return self.first + bisect_left(self.receipts, at_ms, key=lambda one: one[0])

    def between(self, start: int, end: int) -> list[bytes]:
        """Return the bodies between two positions. Raises ReceiptsGone when not all are kept."""
        if start < end and not self.first <= start <= end <= self.end:
            raise ReceiptsGone(
                f"the log of receipts has what came from {self.first} to {self.end}, not all from "
                f"{start} to {end}"
            )
        return [body for _, body in self.receipts[start - self.first : end - self.first]]


class MemoryReceiptLog(MemoryPort):
    """See `backends.ports.ReceiptLog`. The settings are those of the process that came first."""

    def __init__(self, shared: LockAndClock, settings: Settings) -> None:
        super().__init__(shared)
        self._partitions = [_Partition() for _ in range(settings.receipts_partitions)]
        self._most_bytes = settings.receipts_max_bytes // settings.receipts_partitions
        self._retention_ms = settings.receipts_retention_s * 1000
        self._drops = settings.receipts != "required"
        self._committed: list[int] | None = None
        self._secret = secrets.token_bytes(16)
        self._turns = count()

    @one_step
    def append(self, bodies: Sequence[bytes]) -> None:
        if not bodies:
            return
        order = next(self._turns)
        for step in range(len(self._partitions)):
            index = (order + step) % len(self._partitions)
            if self._has_room(index):
                self._partitions[index].append(self._now_ms, bodies)
                return
        raise StorageFull(
            "the log of receipts in memory is full, and nothing has read it: raise "
            "receipts_max_bytes, or set receipts=on"
        )

    @one_step
    def secret(self) -> bytes:
        return self._secret

    @one_step
    def first(self) -> list[str]:
        return _shown(part.first for part in self._partitions)

    @one_step
    def since(self, at_ms: int) -> list[str]:
        return _shown(part.since(at_ms) for part in self._partitions)

    @one_step
    def committed(self) -> list[str] | None:
        return None if self._committed is None else _shown(self._committed)

    @one_step
    def advance(self, start: Sequence[str], most: int | None = None) -> list[str]:
        here = _read(start)
        pairs = zip(self._partitions, here, strict=True)
        counts = [len(part.between(begin, part.end)) for part, begin in pairs]
        steps = counts if most is None else split_evenly(counts, most)
        return _shown(begin + step for begin, step in zip(here, steps, strict=True))

    @one_step
    def kept(self, positions: Sequence[str]) -> list[str]:
        return _shown(self._kept(positions))

    async def read(self, partition: int, start: str, end: str) -> AsyncIterator[list[bytes]]:
        with self._shared.lock:
            bodies = self._partitions[partition].between(int(start), int(end))
        for begin in range(0, len(bodies), _PAGE):
            yield bodies[begin : begin + _PAGE]

    @one_step
    def commit(self, positions: Sequence[str]) -> None:
        self._committed = _read(positions)
        until_ms = self._now_ms - self._retention_ms
        for part, position in zip(self._partitions, self._committed, strict=True):
            while part.first < position and part.receipts[0][0] <= until_ms:
                part.drop_oldest()

    @one_step
    def lag(self, positions: Sequence[str]) -> int:
        kept = zip(self._partitions, self._kept(positions), strict=True)
        return sum(part.end - position for part, position in kept)

    async def close(self) -> None:
        """Do nothing: nothing is open."""

    def _has_room(self, index: int) -> bool:
        """Return whether a partition takes more; drop its oldest bodies where that may be."""
        part = self._partitions[index]
        taken_over = self._committed[index] if self._committed else 0
        while part.bytes >= self._most_bytes:
            if part.first >= taken_over and not self._drops:
                return False
            part.drop_oldest()
        return True

    def _kept(self, positions: Sequence[str]) -> list[int]:
        if len(positions) != len(self._partitions):  # of a log that was here before
            return [part.first for part in self._partitions]
        pairs = zip(self._partitions, _read(positions), strict=True)
        return [part.kept(position) for part, position in pairs]


def _shown(positions: Iterable[int]) -> list[str]:
    return [str(position) for position in positions]


def _read(positions: Sequence[str]) -> list[int]:
    return [int(position) for position in positions]
