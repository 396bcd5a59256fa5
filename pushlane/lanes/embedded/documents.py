"""The document store on SQLite: one row a document, with versions from one counter for all.

The table and the counter are called `shelf`, as in the stores of earlier versions.
"""

from __future__ import annotations

import sqlite3

from pushlane.lanes.embedded.database import Database
from pushlane.lanes.embedded.schema import bump
from pushlane.lanes.ports import Document
from pushlane.lanes.ports.documents import check_body, check_place


class EmbeddedDocuments:
    """See `lanes.ports.DocumentStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, kind: str, name: str, body: bytes, expected: int | None) -> int | None:
        check_place(kind, name)
        check_body(kind, name, body)

        def job(connection: sqlite3.Connection) -> int | None:
            found = _find(connection, kind, name)
            if (found.version if found else None) != expected:
                return None
            version = bump(connection, "shelf")
            connection.execute(
                "REPLACE INTO shelf (kind, name, version, body) VALUES (?, ?, ?, ?)",
                (kind, name, version, body),
            )
            return version

        return await self._database.write(job, durable=True)

    async def get(self, kind: str, name: str) -> Document | None:
        check_place(kind, name)
        return await self._database.read(lambda connection: _find(connection, kind, name))

    async def list(self, kind: str) -> list[Document]:
        def job(connection: sqlite3.Connection) -> list[Document]:
            wanted = "SELECT name, version, body FROM shelf WHERE kind = ? ORDER BY name"
            return [Document(*row) for row in connection.execute(wanted, (kind,))]

        return await self._database.read(job)

    async def remove(self, kind: str, name: str) -> bool:
        check_place(kind, name)

        def job(connection: sqlite3.Connection) -> bool:
            gone = "DELETE FROM shelf WHERE kind = ? AND name = ?"
            return connection.execute(gone, (kind, name)).rowcount > 0

        return await self._database.write(job, durable=True)


def _find(connection: sqlite3.Connection, kind: str, name: str) -> Document | None:
    wanted = "SELECT name, version, body FROM shelf WHERE kind = ? AND name = ?"
    row = connection.execute(wanted, (kind, name)).fetchone()
    return Document(*row) if row else None
