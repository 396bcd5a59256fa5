"""The recipient windows on SQLite: a row for each mark's key, with its token and whose turn it is.

Each call deletes some of the rows that are older than the window, so the table holds about a
window's worth of recipients.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence

from pushlane.backends.embedded.database import Database
from pushlane.core.task import now_ms
from pushlane.lanes.embedded.day_counts import EmbeddedDayCounts
from pushlane.lanes.embedded.held import latest_ms
from pushlane.lanes.ports import RecipientTurn
from pushlane.model.recipients import CapDay, Mark

_FIRST = """
INSERT INTO marks (key, token, holder, until_ms, forget_at_ms)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), '', 0, :forget_at_ms
FROM json_each(:marks) WHERE true
ON CONFLICT (key) DO UPDATE SET token = excluded.token, forget_at_ms = :forget_at_ms
WHERE forget_at_ms <= :now_ms
"""

_ANNOUNCE = """
INSERT INTO marks (key, token, holder, until_ms, forget_at_ms)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), '', 0, :forget_at_ms
FROM json_each(:marks) WHERE true
ON CONFLICT (key) DO UPDATE SET
    token = CASE WHEN forget_at_ms <= :now_ms THEN excluded.token
        ELSE max(token, excluded.token) END,
    holder = CASE WHEN forget_at_ms <= :now_ms THEN '' ELSE holder END,
    forget_at_ms = :forget_at_ms
"""

# The holder names its token, too: an older one may still hold what is the newest's by now.
_ENTER = """
UPDATE marks SET holder = :owner || token, until_ms = :until_ms FROM json_each(:marks) AS given
WHERE marks.key = json_extract(value, '$[0]') AND token = json_extract(value, '$[1]')
    AND (holder IN ('', :owner || token) OR until_ms <= :now_ms OR until_ms > :latest_ms)
"""

_LEAVE = """
UPDATE marks SET holder = '' FROM json_each(:marks) AS given
WHERE marks.key = json_extract(value, '$[0]')
    AND holder = :owner || json_extract(value, '$[1]')
"""

_ANSWERS = """
SELECT json_group_object(given.key, CASE
    WHEN token <> json_extract(value, '$[1]') THEN 'over'
    WHEN holder IN ('', :owner || token) THEN 'go'
    ELSE 'busy'
END)
FROM json_each(:marks) AS given JOIN marks ON marks.key = json_extract(value, '$[0]')
"""

_SWEEP = """
DELETE FROM marks WHERE key IN (
    SELECT key FROM marks WHERE forget_at_ms <= :now_ms
    ORDER BY forget_at_ms LIMIT 2 * json_array_length(:marks) + 64
)
"""


class EmbeddedRecipientWindows:
    """See `core.ports.RecipientWindows`. `clock_ms` is a clock in Unix milliseconds."""

    def __init__(
        self, database: Database, window_s: float, clock_ms: Callable[[], int] = now_ms
    ) -> None:
        self._database = database
        self._window_ms = round(window_s * 1000)
        self._clock_ms = clock_ms
        self._counts = EmbeddedDayCounts(database, clock_ms)

    async def first(self, marks: Sequence[Mark]) -> list[bool]:
        turns = await self._change((_SWEEP, _FIRST), marks)
        return [turn is RecipientTurn.GO for turn in turns]

    async def announce(self, marks: Sequence[Mark]) -> None:
        await self._change((_SWEEP, _ANNOUNCE), marks)

    async def enter(self, marks: Sequence[Mark], owner: str, ttl_s: float) -> list[RecipientTurn]:
        return await self._change((_SWEEP, _ANNOUNCE, _ENTER), marks, owner, ttl_s)

    async def leave(self, marks: Sequence[Mark], owner: str) -> None:
        await self._change((_LEAVE,), marks, owner)

    async def count(self, on: CapDay, keys: Mapping[str, int]) -> list[str]:
        return await self._counts.count(on, keys)

    async def uncount(self, on: CapDay, keys: Mapping[str, int]) -> None:
        await self._counts.uncount(on, keys)

    async def _change(
        self, statements: Sequence[str], marks: Sequence[Mark], owner: str = "", ttl_s: float = 0
    ) -> list[RecipientTurn]:
        """Run the statements; return where each mark stands then."""

        def job(connection: sqlite3.Connection) -> list[RecipientTurn]:
            values = self._values(marks, owner, ttl_s)
            for statement in statements:
                connection.execute(statement, values)
            [answers] = connection.execute(_ANSWERS, values).fetchone()
            by_place = json.loads(answers)
            return [RecipientTurn(by_place[str(place)]) for place in range(len(marks))]

        return await self._database.write(job)

    def _values(self, marks: Sequence[Mark], owner: str, ttl_s: float) -> dict[str, str | int]:
        now, ttl_ms = self._clock_ms(), round(ttl_s * 1000)
        return {
            "marks": json.dumps(marks),
            "owner": f"{owner} " if owner else "",
            "now_ms": now,
            "until_ms": now + ttl_ms,
            "latest_ms": latest_ms(now, ttl_ms),
            "forget_at_ms": now + ttl_ms + self._window_ms,
        }
