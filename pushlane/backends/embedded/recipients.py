"""The dead addresses on SQLite: a row for each, and one for each address that was registered.

A row's number is the microsecond at which it was recorded, or the next one that is free: so rows
lie in the order of their times, and a page begins behind a number.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from pushlane.backends.embedded.database import Database
from pushlane.lanes.dead_address import AddressDeath, DeadAddress, DeadAddressPage, DeadAddressQuery
from pushlane.lanes.embedded.suppressions import suppress, unsuppress
from pushlane.lanes.suppression import SuppressionScope

PAGE = 500

_ALIVE = """
SELECT json_group_array(hash) FROM json_each(:deaths) AS given CROSS JOIN registered
ON hash = json_extract(value, '$[0]') AND sink = :sink
WHERE at_ms >= json_extract(value, '$[1]')
"""

_FREE = "SELECT max(n) FROM dead_addresses WHERE n >= ?1 AND n < ?1 + 60000000"

_RECORD = """
INSERT OR IGNORE INTO dead_addresses (n, sink, hash, died_at_ms, reason, app, sealed)
SELECT :first + given.key, :sink, json_extract(value, '$[0]'), json_extract(value, '$[1]'),
    json_extract(value, '$[2]'), json_extract(value, '$[3]'), json_extract(value, '$[4]')
FROM json_each(:deaths) AS given
"""

_RECORDED = "SELECT json_group_array(hash) FROM dead_addresses WHERE n >= ? AND n < ?"

_REMOVE = """
DELETE FROM dead_addresses
WHERE hash IN (SELECT value FROM json_each(:hashes)) AND sink = :sink
"""

_REGISTER = """
INSERT INTO registered (hash, sink, at_ms) SELECT value, :sink, :at_ms FROM json_each(:hashes)
WHERE true ON CONFLICT (hash, sink) DO UPDATE SET at_ms = max(at_ms, excluded.at_ms)
"""

_PAGE = """
SELECT json_group_array(json_array(n, sink, hash, died_at_ms, reason, app, sealed)) FROM (
    SELECT * FROM dead_addresses WHERE n >= :first AND n < :end AND :sink IN ('', sink)
    ORDER BY n LIMIT :page)
"""

_FORGET = """
DELETE FROM dead_addresses WHERE n IN (
    SELECT n FROM dead_addresses WHERE n < ? ORDER BY n LIMIT ?)
"""

_FORGET_REGISTERED = """
DELETE FROM registered WHERE (hash, sink) IN (
    SELECT hash, sink FROM registered WHERE at_ms < ? ORDER BY at_ms LIMIT ?)
"""


class EmbeddedDeadAddresses:
    """See `core.ports.DeadAddresses`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(self, sink: str, deaths: Sequence[AddressDeath], at_ms: int) -> list[int]:
        def job(connection: sqlite3.Connection) -> list[int]:
            dead = _not_registered(connection, sink, deaths)
            suppress(connection, SuppressionScope("sink", sink), [one.hash for one in dead])
            return _recorded(connection, sink, dead, at_ms)

        return await self._database.write(job, durable=True)

    async def register(self, sink: str, hashes: Sequence[int], at_ms: int) -> int:
        values = {"sink": sink, "hashes": json.dumps(list(hashes)), "at_ms": at_ms}

        def job(connection: sqlite3.Connection) -> int:
            connection.execute(_REMOVE, values)
            connection.execute(_REGISTER, values)
            return unsuppress(connection, SuppressionScope("sink", sink), hashes)

        return await self._database.write(job, durable=True)

    async def page(self, query: DeadAddressQuery, after: int = 0) -> DeadAddressPage:
        first, end = query.since_ms * 1000, 2**63 - 1
        if query.newest_first:
            end = after or end
        else:
            first = max(first, after + 1)
        values = {"first": first, "end": end, "sink": query.sink, "page": PAGE}
        statement = _PAGE.replace("BY n", "BY n DESC") if query.newest_first else _PAGE

        def job(connection: sqlite3.Connection) -> str:
            return str(connection.execute(statement, values).fetchone()[0])

        rows = json.loads(await self._database.read(job))
        found = [DeadAddress(row[1], row[2], row[0] // 1000, *row[3:]) for row in rows]
        return DeadAddressPage(found, rows[-1][0] if len(rows) == PAGE else 0)

    async def forget(self, before_ms: int, most: int) -> int:
        def job(connection: sqlite3.Connection) -> int:
            records = connection.execute(_FORGET, (before_ms * 1000, most)).rowcount
            return records + connection.execute(_FORGET_REGISTERED, (before_ms, most)).rowcount

        return await self._database.write(job)


def _not_registered(
    connection: sqlite3.Connection, sink: str, deaths: Sequence[AddressDeath]
) -> list[AddressDeath]:
    """Return those that were not registered since they died."""
    values = {"sink": sink, "deaths": json.dumps(deaths)}
    alive = set(json.loads(connection.execute(_ALIVE, values).fetchone()[0]))
    return [one for one in deaths if one.hash not in alive]


def _recorded(
    connection: sqlite3.Connection, sink: str, dead: Sequence[AddressDeath], at_ms: int
) -> list[int]:
    """Record those that have no record; return their hashes."""
    [newest] = connection.execute(_FREE, (at_ms * 1000,)).fetchone()
    first = at_ms * 1000 if newest is None else newest + 1
    values = {"sink": sink, "deaths": json.dumps(dead), "first": first}
    connection.execute(_RECORD, values)
    [hashes] = connection.execute(_RECORDED, (first, first + len(dead))).fetchone()
    new: list[int] = json.loads(hashes)
    return new
