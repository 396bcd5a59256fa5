"""Cells on SQLite, a row each, for the rules in `backends.cells`.

Their tables are those of earlier versions: `leases`, `presence`, and `shelf` for documents. Time is
the machine's clock, which all processes on the store share.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from pushlane.backends.cells import Cell, next_number
from pushlane.backends.embedded.database import StorePort
from pushlane.backends.embedded.ledger import is_held, latest_ms
from pushlane.backends.embedded.schema import bump
from pushlane.backends.ports import Grant

_KEPT_MS = 24 * 3600 * 1000
_SWEEP = "DELETE FROM leases WHERE name IN (SELECT name FROM leases WHERE until_ms < ? LIMIT 16)"

LIVE = "SELECT body FROM presence WHERE expires_at_ms > ? AND expires_at_ms <= ?"
"""Reads the processes that live; takes the time of now and the latest end that one can have."""

_FORGET = "DELETE FROM presence WHERE NOT (expires_at_ms > ? AND expires_at_ms <= ?)"


class EmbeddedLeaseCells(StorePort):
    """See `backends.cells.LeaseCells`: a row for each name, kept for a day after its time is over.

    So the number of an earlier value is there to be counted on, and for fences to be checked.
    """

    async def read(self, key: str) -> Cell | None:
        return await self._database.read(lambda store: _held(store, key, self._clock_ms()))

    async def put_new(self, key: str, value: bytes, ttl_ms: int) -> Grant | None:
        def job(store: sqlite3.Connection) -> Grant | None:
            now = self._clock_ms()
            if _held(store, key, now) is not None:
                return None
            number = next_number(last_number(store, key) or 0, now)
            store.execute(_SWEEP, (now - _KEPT_MS,))
            store.execute(
                "REPLACE INTO leases (name, holder, until_ms, fence) VALUES (?, ?, ?, ?)",
                (key, value.decode(), now + ttl_ms, number),
            )
            return Grant(number, now)

        return await self._database.write(job)

    async def renew(self, key: str, value: bytes, ttl_ms: int) -> Grant | None:
        return await self._end(key, value, ttl_ms)

    async def drop(self, key: str, value: bytes) -> bool:
        return await self._end(key, value, 0) is not None

    async def _end(self, key: str, value: bytes, in_ms: int) -> Grant | None:
        """Let this value end in so many ms from now; None when it is not there."""

        def job(store: sqlite3.Connection) -> Grant | None:
            now = self._clock_ms()
            cell = _held(store, key, now)
            if cell is None or cell.value != value:
                return None
            ends = "UPDATE leases SET until_ms = ? WHERE name = ?"
            store.execute(ends, (now + in_ms, key))
            return Grant(cell.number, now)

        return await self._database.write(job)


def last_number(store: sqlite3.Connection, key: str) -> int | None:
    """Return the number that the lease was given out under last; None when it is not known."""
    row = store.execute("SELECT fence FROM leases WHERE name = ?", (key,)).fetchone()
    return int(row[0]) if row else None


def _held(store: sqlite3.Connection, key: str, now: int) -> Cell | None:
    wanted = "SELECT holder, fence, until_ms FROM leases WHERE name = ?"
    row = store.execute(wanted, (key,)).fetchone()
    return Cell(row[0].encode(), int(row[1])) if row and is_held(row[2], now) else None


class EmbeddedDocumentCells(StorePort):
    """See `backends.cells.DocumentCells`. Their numbers are from one counter for all."""

    async def read(self, key: str) -> Cell | None:
        return await self._database.read(lambda store: _kept(store, key))

    async def put(self, key: str, value: bytes, over: int | None) -> int | None:
        def job(store: sqlite3.Connection) -> int | None:
            there = _kept(store, key)
            if (there.number if there else None) != over:
                return None
            number = bump(store, "shelf")
            store.execute(
                "REPLACE INTO shelf (kind, name, version, body) VALUES (?, ?, ?, ?)",
                (*_place(key), number, value),
            )
            return number

        return await self._database.write(job, durable=True)

    async def remove(self, key: str) -> bool:
        def job(store: sqlite3.Connection) -> bool:
            gone = "DELETE FROM shelf WHERE kind = ? AND name = ?"
            return store.execute(gone, _place(key)).rowcount > 0

        return await self._database.write(job, durable=True)

    async def list(self, prefix: str) -> dict[str, Cell]:
        def job(store: sqlite3.Connection) -> dict[str, Cell]:
            wanted = "SELECT name, body, version FROM shelf WHERE kind = ?"
            rows = store.execute(wanted, _place(prefix)[:1])
            return {prefix + name: Cell(body, version) for name, body, version in rows}

        return await self._database.read(job)


def _kept(store: sqlite3.Connection, key: str) -> Cell | None:
    wanted = "SELECT body, version FROM shelf WHERE kind = ? AND name = ?"
    row = store.execute(wanted, _place(key)).fetchone()
    return Cell(*row) if row else None


def _place(key: str) -> tuple[str, str]:
    kind, _, name = key.partition(":")
    return kind, name


class EmbeddedPresenceCells(StorePort):
    """See `backends.cells.PresenceCells`."""

    async def show(self, key: str, value: bytes, ttl_ms: int) -> None:
        now = self._clock_ms()

        def job(store: sqlite3.Connection) -> None:
            store.execute(_FORGET, (now, latest_ms(now)))
            store.execute(
                "REPLACE INTO presence (id, expires_at_ms, body) VALUES (?, ?, ?)",
                (key, now + ttl_ms, value),
            )

        await self._database.write(job)

    async def values(self) -> Sequence[bytes]:
        now = self._clock_ms()
        rows = await self._database.read(
            lambda store: store.execute(LIVE, (now, latest_ms(now))).fetchall()
        )
        return [body for (body,) in rows]

    async def remove(self, key: str) -> bool:
        gone = "DELETE FROM presence WHERE id = ?"
        return await self._database.write(lambda store: store.execute(gone, (key,)).rowcount > 0)
