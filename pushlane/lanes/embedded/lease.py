"""The lease port on SQLite: a row for each name, kept for a day after it was let go.

A fence is never below the time in ms, so that it grows even when the row of an earlier one is gone.
Time is the machine's clock, which all processes on the store share.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from pushlane.lanes.embedded.database import Database
from pushlane.lanes.embedded.held import is_held
from pushlane.lanes.errors import Superseded
from pushlane.lanes.ports import Fence, Grant
from pushlane.lanes.task_transitions import now_ms

_KEPT_MS = 24 * 3600 * 1000
_SWEEP = "DELETE FROM leases WHERE name IN (SELECT name FROM leases WHERE until_ms < ? LIMIT 16)"


class EmbeddedLease:
    """See `lanes.ports.Lease`. `clock_ms` is a clock in Unix milliseconds."""

    def __init__(self, database: Database, clock_ms: Callable[[], int] = now_ms) -> None:
        self._database = database
        self._clock_ms = clock_ms

    async def acquire(self, name: str, holder: str, ttl_s: float) -> Grant | None:
        def job(connection: sqlite3.Connection) -> Grant | None:
            return _acquire(connection, name, holder, self._clock_ms(), round(ttl_s * 1000))

        return await self._database.write(job)

    async def is_held(self, name: str) -> bool:
        def job(connection: sqlite3.Connection) -> bool:
            row = connection.execute("SELECT until_ms FROM leases WHERE name = ?", (name,))
            return any(is_held(until_ms, self._clock_ms()) for (until_ms,) in row)

        return await self._database.read(job)

    async def release(self, name: str, holder: str) -> None:
        await self._database.write(
            lambda connection: (
                connection.execute(
                    "UPDATE leases SET until_ms = min(until_ms, ?) WHERE name = ? AND holder = ?",
                    (self._clock_ms(), name, holder),
                ).rowcount
            )
        )


def check_fence(connection: sqlite3.Connection, fence: Fence) -> None:
    """Check a fence, inside the transaction of the change that carries it.

    Raises:
        Superseded: the lease went to another since.
    """
    row = connection.execute("SELECT fence FROM leases WHERE name = ?", (fence.lease,)).fetchone()
    if row != (fence.number,):
        raise Superseded(f"the lease {fence.lease} is another process's now: nothing was changed")


def _acquire(
    connection: sqlite3.Connection, name: str, holder: str, now: int, ttl_ms: int
) -> Grant | None:
    row = connection.execute(
        "SELECT holder, until_ms, fence FROM leases WHERE name = ?", (name,)
    ).fetchone()
    held_by, until_ms, fence = row or ("", 0, 0)
    is_taken = is_held(until_ms, now)
    if is_taken and held_by != holder:
        return None
    if not is_taken:
        fence = max(now, fence + 1)
        connection.execute(_SWEEP, (now - _KEPT_MS,))
    connection.execute(
        "REPLACE INTO leases (name, holder, until_ms, fence) VALUES (?, ?, ?, ?)",
        (name, holder, now + ttl_ms, fence),
    )
    return Grant(int(fence), now)
