"""The suppressions on SQLite: a row for each scope with its count, and one for each hash in it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence

from pushlane.backends.embedded.database import Database
from pushlane.lanes.suppression import SuppressionScope

_SCOPE = "INSERT OR IGNORE INTO suppression_scopes (name, size) VALUES (?, 0)"
_SCOPE_ID = "SELECT id FROM suppression_scopes WHERE name = ?"

_ADD = """
INSERT OR IGNORE INTO suppressed (scope_id, hash)
SELECT ?1, value FROM json_each(?2) ORDER BY value
"""

_REMOVE = """
DELETE FROM suppressed WHERE scope_id = ?1 AND hash IN (SELECT value FROM json_each(?2))
"""

_FIND = """
SELECT json_group_array(value) FROM json_each(?2) CROSS JOIN suppressed
ON scope_id = (SELECT id FROM suppression_scopes WHERE name = ?1) AND hash = value
"""

_CLEAR_SOME = """
DELETE FROM suppressed WHERE scope_id = ?1 AND hash IN
    (SELECT hash FROM suppressed WHERE scope_id = ?1 LIMIT 20000)
"""

_RESIZE = "UPDATE suppression_scopes SET size = size + ? WHERE id = ?"

_COUNTS = "SELECT json_group_object(name, size) FROM suppression_scopes WHERE size > 0"


class EmbeddedSuppressions:
    """See `core.ports.Suppressions`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, scope: SuppressionScope, hashes: Sequence[int]) -> int:
        return await self._database.write(lambda on: suppress(on, scope, hashes), durable=True)

    async def remove(self, scope: SuppressionScope, hashes: Sequence[int]) -> int:
        return await self._database.write(lambda on: unsuppress(on, scope, hashes), durable=True)

    async def clear(self, scope: SuppressionScope) -> None:
        """Remove some thousands at a time, so that others are not kept waiting."""

        def job(connection: sqlite3.Connection) -> int:
            place = _place(connection, scope)
            removed = connection.execute(_CLEAR_SOME, (place,)).rowcount
            connection.execute(_RESIZE, (-removed, place))
            return removed

        while await self._database.write(job, durable=True):
            pass

    async def counts(self) -> dict[SuppressionScope, int]:
        def job(connection: sqlite3.Connection) -> str:
            return str(connection.execute(_COUNTS).fetchone()[0])

        found: dict[str, int] = json.loads(await self._database.read(job))
        return {SuppressionScope.parse(name): size for name, size in found.items()}

    async def find(
        self, asked: Mapping[SuppressionScope, Sequence[int]]
    ) -> dict[SuppressionScope, list[int]]:
        def job(connection: sqlite3.Connection) -> dict[SuppressionScope, list[int]]:
            return {scope: _found(connection, scope, hashes) for scope, hashes in asked.items()}

        return await self._database.read(job)


def suppress(connection: sqlite3.Connection, scope: SuppressionScope, hashes: Sequence[int]) -> int:
    """Do in a transaction what `Suppressions.add` does."""
    return _change(connection, scope, _ADD, hashes, 1)


def unsuppress(
    connection: sqlite3.Connection, scope: SuppressionScope, hashes: Sequence[int]
) -> int:
    """Do in a transaction what `Suppressions.remove` does."""
    return _change(connection, scope, _REMOVE, hashes, -1)


def _change(
    connection: sqlite3.Connection,
    scope: SuppressionScope,
    statement: str,
    hashes: Sequence[int],
    sign: int,
) -> int:
    place = _place(connection, scope)
    changed = connection.execute(statement, (place, json.dumps(list(hashes)))).rowcount
    connection.execute(_RESIZE, (sign * changed, place))
    return changed


def _place(connection: sqlite3.Connection, scope: SuppressionScope) -> int:
    """Return the id of a scope, which is made when it is not there."""
    connection.execute(_SCOPE, (str(scope),))
    return int(connection.execute(_SCOPE_ID, (str(scope),)).fetchone()[0])


def _found(
    connection: sqlite3.Connection, scope: SuppressionScope, hashes: Sequence[int]
) -> list[int]:
    [found] = connection.execute(_FIND, (str(scope), json.dumps(hashes))).fetchone()
    some: list[int] = json.loads(found)
    return some
