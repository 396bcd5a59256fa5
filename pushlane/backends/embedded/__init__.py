"""All ports on SQLite: the default backend; durable, and several processes at once.

One folder holds one store. Nothing outside this package sees sqlite3.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pushlane.backends.backend import Backend
from pushlane.backends.cells import CellDocuments, CellLease, CellPresence
from pushlane.backends.embedded.broker import EmbeddedBroker
from pushlane.backends.embedded.cells import (
    EmbeddedDocumentCells,
    EmbeddedLeaseCells,
    EmbeddedPresenceCells,
)
from pushlane.backends.embedded.database import Database
from pushlane.backends.embedded.ledger import EmbeddedLedger
from pushlane.backends.embedded.limiter import EmbeddedLimiter
from pushlane.backends.embedded.receipt_log import EmbeddedReceiptLog
from pushlane.backends.embedded.recipients import (
    EmbeddedDeadAddresses,
    EmbeddedRecipientWindows,
    EmbeddedSuppressions,
)
from pushlane.backends.embedded.registry import EmbeddedRegistry
from pushlane.settings import Settings

__all__ = ["connect", "connect_receipts"]


@asynccontextmanager
async def connect(settings: Settings) -> AsyncIterator[Backend]:
    """Open the store in `settings.data_dir`, making it when it is not there.

    Raises Unreachable when the folder cannot be used; says why.
    """
    database = Database(settings.data_dir)
    await database.open()
    broker = EmbeddedBroker(database, settings.prefetch)
    receipts = EmbeddedReceiptLog(settings)
    try:
        yield Backend(
            broker,
            EmbeddedRegistry(database),
            CellLease(EmbeddedLeaseCells(database)),
            EmbeddedLedger(database, settings.ledger_window_s),
            EmbeddedRecipientWindows(database, settings.recipient_window_s),
            CellDocuments(EmbeddedDocumentCells(database)),
            receipts,
            CellPresence(EmbeddedPresenceCells(database)),
            EmbeddedLimiter(database),
            EmbeddedSuppressions(database),
            EmbeddedDeadAddresses(database),
        )
    finally:
        try:
            await receipts.close()
            await broker.close()
        finally:
            await database.close()


@asynccontextmanager
async def connect_receipts(settings: Settings) -> AsyncIterator[EmbeddedReceiptLog]:
    """Open the log of receipts alone; the store is not opened."""
    receipts = EmbeddedReceiptLog(settings)
    try:
        yield receipts
    finally:
        await receipts.close()
