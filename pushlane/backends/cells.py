"""The rules of leases, documents and presence, each once, over the cells of any store.

A cell is a value under a key, which the store changes in one atomic step, and which ends by the
store's own clock where it has a time to live. Nothing is decided in a store but whether a cell
still is what it was taken for: who may have it is decided here. Each adapter has its cells, in the
form that earlier versions gave to what they keep.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pushlane.backends.ports import Fence, Grant
from pushlane.model.documents import Document, check_body, check_place
from pushlane.model.presence import Process, decode_all, encode, newer_than_ours
from pushlane.util.errors import Superseded
from pushlane.util.retrying import Sleep

_MOST_TRIES = 6
_FIRST_PAUSE_S = 0.002


class Cell(NamedTuple):
    """A value, and the number that it was given: higher than any its key had before."""

    value: bytes
    number: int


class LeaseCells(Protocol):
    """Cells with a time to live.

    A new value's number is a fence: it is no lower than the store's time in ms, so that it grows
    even when the store has lost the numbers that it gave.
    """

    async def read(self, key: str) -> Cell | None:
        """Return the cell of this key; None when there is none, or its time is over."""

    async def put_new(self, key: str, value: bytes, ttl_ms: int) -> Grant | None:
        """Put a value where there is none, under a new number; None when there is one."""

    async def renew(self, key: str, value: bytes, ttl_ms: int) -> Grant | None:
        """Start the time of this value anew, under its number; None when it is not there."""

    async def drop(self, key: str, value: bytes) -> bool:
        """Remove this value. False when it is not there."""


class DocumentCells(Protocol):
    """Cells that last until they are removed; their keys are `kind:name`."""

    async def read(self, key: str) -> Cell | None:
        """Return the cell of this key, None when there is none."""

    async def put(self, key: str, value: bytes, over: int | None) -> int | None:
        """Put a value over the one of this number (None: where there is none); return its number.

        None when another is there.
        """

    async def remove(self, key: str, over: int | None) -> bool:
        """Remove what is there, or only the cell of this number. False when that is not there."""

    async def list(self, prefix: str) -> dict[str, Cell]:
        """Return the cells whose keys begin so, by key."""


class PresenceCells(Protocol):
    """Cells with a time to live that have one writer each."""

    async def show(self, key: str, value: bytes, ttl_ms: int) -> None:
        """Put a value, whatever is there."""

    async def values(self) -> Sequence[bytes]:
        """Return all values whose time is not over."""

    async def remove(self, key: str) -> bool:
        """Remove what is there. False when nothing is."""


class CellLease:
    """See `backends.ports.Lease`: one holder a name, which nobody takes it from while it lives."""

    def __init__(self, cells: LeaseCells, sleep: Sleep = asyncio.sleep) -> None:
        self._cells = cells
        self._sleep = sleep

    async def acquire(self, name: str, holder: str, ttl_s: float) -> Grant | None:
        ours, ttl_ms = holder.encode(), milliseconds(ttl_s)
        for tried in range(_MOST_TRIES):
            if tried > 1:  # what another took meanwhile shows at once; again and again is rare
                await self._sleep(_FIRST_PAUSE_S * 2**tried * random.uniform(0.5, 1.0))
            held = await self._cells.read(name)
            if held is not None and held.value != ours:
                return None
            change = self._cells.put_new if held is None else self._cells.renew
            if (grant := await change(name, ours, ttl_ms)) is not None:
                return grant
        return None  # it went from one to another all the time

    async def is_held(self, name: str) -> bool:
        return await self._cells.read(name) is not None

    async def release(self, name: str, holder: str) -> None:
        await self._cells.drop(name, holder.encode())


class CellDocuments:
    """See `model.documents.DocumentStore`: the number of a cell is the version of its document."""

    def __init__(self, cells: DocumentCells) -> None:
        self._cells = cells

    async def put(self, kind: str, name: str, body: bytes, expected: int | None) -> int | None:
        key = _key(kind, name)
        check_body(kind, name, body)
        return await self._cells.put(key, body, expected)

    async def get(self, kind: str, name: str) -> Document | None:
        cell = await self._cells.read(_key(kind, name))
        return None if cell is None else _document(name, cell)

    async def list(self, kind: str) -> list[Document]:
        prefix = _key(kind, "any").removesuffix("any")
        found = await self._cells.list(prefix)
        return [_document(key.removeprefix(prefix), found[key]) for key in sorted(found)]

    async def remove(self, kind: str, name: str, expected: int | None = None) -> bool:
        return await self._cells.remove(_key(kind, name), expected)


class CellPresence:
    """See `backends.ports.Presence`."""

    def __init__(self, cells: PresenceCells) -> None:
        self._cells = cells

    async def announce(self, process: Process, ttl_s: float) -> None:
        await self._cells.show(process.id, encode(process), milliseconds(ttl_s))

    async def list(self) -> list[Process]:
        return decode_all(await self._cells.values())

    async def newer(self) -> Sequence[str]:
        return newer_than_ours(await self._cells.values())

    async def leave(self, process_id: str) -> None:
        await self._cells.remove(process_id)


def next_number(last: int, now_ms: int) -> int:
    """Return the number of a new value: see `LeaseCells`."""
    return max(now_ms, last + 1)


def check_fence(fence: Fence, number: int | None) -> None:
    """Check a fence by the last number of its lease, in the step of the change that carries it.

    Raises Superseded when the lease went to another since.
    """
    if number != fence.number:
        raise Superseded(f"another process holds the lease {fence.lease} now: nothing was changed")


def milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _key(kind: str, name: str) -> str:
    """Return the key of a document. Raises BadInput when it can have none."""
    check_place(kind, name)
    return f"{kind}:{name}"


def _document(name: str, cell: Cell) -> Document:
    return Document(name, cell.number, cell.value)
