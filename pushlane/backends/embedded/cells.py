"""Cells on SQLite, a row each, for the rules in `backends.cells`.

Their tables are those of earlier versions: `leases`, `presence`, and `shelf` for documents. Time is
the machine's clock, which all processes on the store share.
"""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Connection

from pushlane.backends.cells import Cell, next_number
from pushlane.backends.embedded.database import StorePort, reads, writes, writes_durably
from pushlane.backends.embedded.ledger import is_held, latest_ms
from pushlane.backends.embedded.schema import bump
from pushlane.backends.ports import Grant

_KEPT_MS = 24 * 3600 * 1000
_SWEEP = "DELETE FROM leases WHERE name IN (SELECT name FROM leases WHERE until_ms < ? LIMIT 16)"
_FORGET = "DELETE FROM presence WHERE NOT (expires_at_ms > ? AND expires_at_ms <= ?)"


class EmbeddedLeaseCells(StorePort):
    """See `backends.cells.LeaseCells`: a row for each name, kept for a day after its time is over.

    So the number of an earlier value is there to be counted on, and for fences to be checked.
    """

    @reads
    def read(self, store: Connection, key: str) -> Cell | None:
        return _held(store, key, self._clock_ms())

    @writes
    def put_new(self, store: Connection, key: str, value: bytes, ttl_ms: int) -> Grant | None:
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

    @writes
    def renew(self, store: Connection, key: str, value: bytes, ttl_ms: int) -> Grant | None:
        now = self._clock_ms()
        cell = _held(store, key, now)
        if cell is None or cell.value != value:
            return None
        store.execute("UPDATE leases SET until_ms = ? WHERE name = ?", (now + ttl_ms, key))
        return Grant(cell.number, now)

    async def drop(self, key: str, value: bytes) -> bool:
        return await self.renew(key, value, 0) is not None


def last_number(store: Connection, key: str) -> int | None:
    """Return the number that the lease was given out under last; None when it is not known."""
    row = store.execute("SELECT fence FROM leases WHERE name = ?", (key,)).fetchone()
    return int(row[0]) if row else None


def _held(store: Connection, key: str, now: int) -> Cell | None:
    wanted = "SELECT holder, fence, until_ms FROM leases WHERE name = ?"
    row = store.execute(wanted, (key,)).fetchone()
    return Cell(row[0].encode(), int(row[1])) if row and is_held(row[2], now) else None


class EmbeddedDocumentCells(StorePort):
    """See `backends.cells.DocumentCells`. Their numbers are from one counter for all."""

    @reads
    def read(self, store: Connection, key: str) -> Cell | None:
        return _kept(store, key)

    @writes_durably
    def put(self, store: Connection, key: str, value: bytes, over: int | None) -> int | None:
        there = _kept(store, key)
        if (there.number if there else None) != over:
            return None
        number = bump(store, "shelf")
        store.execute(
            "REPLACE INTO shelf (kind, name, version, body) VALUES (?, ?, ?, ?)",
            (*_place(key), number, value),
        )
        return number

    @writes_durably
    def remove(self, store: Connection, key: str, over: int | None) -> bool:
        gone = "DELETE FROM shelf WHERE kind = ?1 AND name = ?2 AND version = coalesce(?3, version)"
        return store.execute(gone, (*_place(key), over)).rowcount > 0

    @reads
    def list(self, store: Connection, prefix: str) -> dict[str, Cell]:
        wanted = "SELECT name, body, version FROM shelf WHERE kind = ?"
        rows = store.execute(wanted, _place(prefix)[:1])
        return {prefix + name: Cell(body, version) for name, body, version in rows}


def _kept(store: Connection, key: str) -> Cell | None:
    wanted = "SELECT body, version FROM shelf WHERE kind = ? AND name = ?"
    row = store.execute(wanted, _place(key)).fetchone()
    return Cell(*row) if row else None


def _place(key: str) -> tuple[str, str]:
    kind, _, name = key.partition(":")
    return kind, name


class EmbeddedPresenceCells(StorePort):
    """See `backends.cells.PresenceCells`."""

    @writes
    def show(self, store: Connection, key: str, value: bytes, ttl_ms: int) -> None:
        now = self._clock_ms()
        store.execute(_FORGET, (now, latest_ms(now)))
        store.execute(
            "REPLACE INTO presence (id, expires_at_ms, body) VALUES (?, ?, ?)",
            (key, now + ttl_ms, value),
        )

    @reads
    def values(self, store: Connection) -> Sequence[bytes]:
        return live_processes(store, self._clock_ms())

    @writes
    def remove(self, store: Connection, key: str) -> bool:
        return store.execute("DELETE FROM presence WHERE id = ?", (key,)).rowcount > 0


def live_processes(store: Connection, now_ms: int) -> list[bytes]:
    """Return what the processes that live have said of themselves."""
    live = "SELECT body FROM presence WHERE expires_at_ms > ? AND expires_at_ms <= ?"
    return [body for (body,) in store.execute(live, (now_ms, latest_ms(now_ms))).fetchall()]
