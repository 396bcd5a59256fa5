"""All ports in memory: the backend of tests, pushlane's own and those of who uses it.

It keeps every promise of the ports (`tests/contract`) but one: what it holds is gone with the
process. It opens no file and asks no service.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from pushlane.backends.backend import Backend
from pushlane.backends.cells import CellDocuments, CellLease, CellPresence
from pushlane.backends.memory.broker import MemoryBroker, MemoryLanes
from pushlane.backends.memory.claims import (
    Claims,
    MemoryCells,
    MemoryLedger,
    MemoryLimiter,
    MemoryRecipientWindows,
    RecipientMemory,
)
from pushlane.backends.memory.records import (
    MemoryDeadAddresses,
    MemoryReceiptLog,
    MemorySuppressions,
)
from pushlane.backends.memory.registry import MemoryRegistry
from pushlane.backends.memory.shared import LockAndClock
from pushlane.core.task import now_ms
from pushlane.settings import Settings

__all__ = ["MemoryBackend"]


class MemoryBackend:
    """A store in the memory of this process, for tests of what submits, pushes and delivers.

    `connect` is for it what `pushlane.connect` is for the backend of some settings. Each connection
    is like a process of its own; all see the same tasks and lanes. Pushes that one took and did not
    acknowledge come back when it ends. `clock_ms` tells Unix milliseconds; of a clock that is set
    on by hand, tell `clock_was_set`.

        memory = MemoryBackend()
        async with Client(connect=memory.connect) as client, memory.connect() as backend:
            await client.submit(...)
            dispatcher = Dispatcher(backend, sink, Settings())
    """

    def __init__(self, clock_ms: Callable[[], int] = now_ms) -> None:
        self._shared = LockAndClock(clock_ms)
        self._lanes = MemoryLanes()
        self._leases = MemoryCells(self._shared)
        self._registry = MemoryRegistry(self._shared, self._leases)
        self._claims: Claims = {}
        self._recipients = RecipientMemory()
        self._documents = CellDocuments(MemoryCells(self._shared))
        self._receipts: MemoryReceiptLog | None = None
        self._presence = CellPresence(MemoryCells(self._shared))
        self._limiter = MemoryLimiter(self._shared)
        self._suppressions = MemorySuppressions(self._shared)
        self._dead_addresses = MemoryDeadAddresses(self._shared, self._suppressions)

    @asynccontextmanager
    async def connect(self, settings: Settings | None = None) -> AsyncIterator[Backend]:
        """Open a connection, on any event loop, and close it in the end.

        It uses only the settings of time windows and of receipts, and asks no broker. They are the
        defaults unless given, and read from nowhere.
        """
        backend = self._connection(Settings() if settings is None else settings)
        try:
            yield backend
        finally:
            await backend.broker.close()

    def clock_was_set(self) -> None:
        """Have all readers look whether what they wait for may go by the clock as it is now."""
        with self._shared.lock:
            self._lanes.kick()

    def _connection(self, settings: Settings) -> Backend:
        shared = self._shared
        with shared.lock:
            self._receipts = self._receipts or MemoryReceiptLog(shared, settings)
        return Backend(
            MemoryBroker(shared, self._lanes),
            self._registry,
            CellLease(self._leases),
            MemoryLedger(shared, self._claims, settings.ledger_window_s),
            MemoryRecipientWindows(shared, self._recipients, settings.recipient_window_s),
            self._documents,
            self._receipts,
            self._presence,
            self._limiter,
            self._suppressions,
            self._dead_addresses,
        )
