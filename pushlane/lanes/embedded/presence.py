"""The presence port on SQLite: a row for each process, with the end of its time.

Time is the machine's clock, which all processes on the store share.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from pushlane.lanes.embedded.database import Database
from pushlane.lanes.embedded.held import latest_ms
from pushlane.lanes.presence import Process, decode_all, encode, newer_than_ours
from pushlane.lanes.task_transitions import now_ms

LIVE = "SELECT body FROM presence WHERE expires_at_ms > ? AND expires_at_ms <= ?"
"""Reads the processes that live; takes the time of now and the latest end that one can have."""

_FORGET = "DELETE FROM presence WHERE NOT (expires_at_ms > ? AND expires_at_ms <= ?)"


class EmbeddedPresence:
    """See `lanes.ports.Presence`. `clock_ms` is a clock in Unix milliseconds."""

    def __init__(self, database: Database, clock_ms: Callable[[], int] = now_ms) -> None:
        self._database = database
        self._clock_ms = clock_ms

    async def announce(self, process: Process, ttl_s: float) -> None:
        now = self._clock_ms()
        row = (process.id, now + max(1, round(ttl_s * 1000)), encode(process))

        def job(connection: sqlite3.Connection) -> None:
            connection.execute(_FORGET, (now, latest_ms(now)))
            connection.execute(
                "REPLACE INTO presence (id, expires_at_ms, body) VALUES (?, ?, ?)", row
            )

        await self._database.write(job)

    async def list(self) -> list[Process]:
        return decode_all(await self._bodies())

    async def newer(self) -> Sequence[str]:
        return newer_than_ours(await self._bodies())

    async def _bodies(self) -> Sequence[bytes]:
        now = self._clock_ms()
        rows = await self._database.read(
            lambda connection: connection.execute(LIVE, (now, latest_ms(now))).fetchall()
        )
        return [body for (body,) in rows]

    async def leave(self, process_id: str) -> None:
        gone = "DELETE FROM presence WHERE id = ?"
        await self._database.write(
            lambda connection: connection.execute(gone, (process_id,)).rowcount
        )
