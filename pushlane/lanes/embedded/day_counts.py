"""What was counted against frequency caps, on SQLite: a row for each recipient's key and day.

A row holds the tokens of its pushes as `TOKEN:LEVEL `, one after another. Each call deletes some of
the rows of days that are over everywhere.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping

import msgspec

from pushlane.backends.embedded.database import Database
from pushlane.model.recipients import CapDay

# Nearly always nothing was counted with any of the keys, and there is nothing more to ask. In the
# form of an upsert this would take twice as long: SQLite would prepare to undo it.
_COUNT_NEW = """
INSERT OR IGNORE INTO counted (day, key, tokens)
SELECT :day, value, given.key || ':' || :level || ' ' FROM json_each(:keys) AS given
"""

_COUNT = """
INSERT INTO counted (day, key, tokens)
SELECT :day, value, given.key || ':' || :level || ' ' FROM json_each(:keys) AS given WHERE true
ON CONFLICT (day, key) DO UPDATE SET tokens = tokens || excluded.tokens
WHERE instr(' ' || tokens, ' ' || substr(excluded.tokens, 1, instr(excluded.tokens, ':'))) = 0
    AND length(tokens) - length(replace(tokens, ':', '')) < :in_all
    AND length(tokens) - length(replace(tokens, ':' || :level, :level)) < :of_level
"""

_REFUSED = """
SELECT json_group_array(given.key) FROM json_each(:keys) AS given CROSS JOIN counted
ON day = :day AND counted.key = given.value
WHERE instr(' ' || tokens, ' ' || given.key || ':') = 0
"""

_UNCOUNT = """
UPDATE counted SET tokens = ltrim(
    replace(' ' || tokens, ' ' || given.key || ':' || :level || ' ', ' '), ' ')
FROM json_each(:keys) AS given WHERE day = :day AND counted.key = given.value
"""

_EMPTY = """
DELETE FROM counted WHERE day = :day AND tokens = ''
    AND key IN (SELECT value FROM json_each(:keys))
"""

_SWEEP = """
DELETE FROM counted WHERE (day, key) IN (
    SELECT day, key FROM counted WHERE day < :oldest ORDER BY day, key LIMIT 2 * :size + 64
)
"""

_LIVE_DAYS = 2
"""A date lasts 50 hours around the world, so that on one day in UTC three dates are seen."""


class EmbeddedDayCounts:
    """The part of `core.ports.RecipientWindows` that counts. `clock_ms` gives Unix ms."""

    def __init__(self, database: Database, clock_ms: Callable[[], int]) -> None:
        self._database = database
        self._clock_ms = clock_ms
        self._swept_before = 0

    async def count(self, on: CapDay, keys: Mapping[str, int]) -> list[str]:
        values = self._values(on, keys)
        most = min(on.cap)

        def job(connection: sqlite3.Connection) -> list[str]:
            self._sweep(connection, len(keys))
            if connection.execute(_COUNT_NEW, values).rowcount == len(keys):
                return []
            connection.execute(_COUNT, values)
            refused: list[str] = json.loads(connection.execute(_REFUSED, values).fetchone()[0])
            return refused

        return await self._database.write(job) if most > 0 else list(keys)

    async def uncount(self, on: CapDay, keys: Mapping[str, int]) -> None:
        def job(connection: sqlite3.Connection) -> None:
            left = dict(keys)
            while left:  # an update takes one token of a key at a time
                some = {key: token for token, key in left.items()}
                values = self._values(on, {token: key for key, token in some.items()})
                connection.execute(_UNCOUNT, values)
                connection.execute(_EMPTY, values)
                left = {token: key for token, key in left.items() if some[key] != token}

        await self._database.write(job)

    def _values(self, on: CapDay, keys: Mapping[str, int]) -> dict[str, str | int]:
        return {
            "keys": msgspec.json.encode(keys).decode(),
            "day": on.day,
            "level": on.level[0],
            "of_level": on.cap.of_level,
            "in_all": on.cap.in_all,
        }

    def _sweep(self, connection: sqlite3.Connection, size: int) -> None:
        """Delete some rows of days that are over, until none is left of them."""
        oldest = self._clock_ms() // 86_400_000 - _LIVE_DAYS
        if oldest == self._swept_before:
            return
        if not connection.execute(_SWEEP, {"oldest": oldest, "size": size}).rowcount:
            self._swept_before = oldest
