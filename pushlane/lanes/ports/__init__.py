"""The ports: what pushlane needs of a broker, a registry and a lease, in its own words.

Every method is a coroutine unless it says that it never blocks. Adapters translate their vendor's
errors into `core.errors`; `Unreachable` means that the call may be tried again. One contract
suite a port (tests/contract) runs on every adapter.

A port with two subjects is two protocols that its adapter implements together: `Broker` is a
`LaneHistory` too, `Registry` a `TaskStore` and a `ProgressStore`, `ReceiptLog` a `ReceiptWriter`
and a `ReceiptReader`. Whoever needs one subject asks for that one.
"""

from __future__ import annotations

from pushlane.backends.ports import Changes, Edit, FoundTasks, ProgressStore, Registry, TaskStore
from pushlane.core.ports import (
    Broker,
    Delayed,
    Delivery,
    LaneHistory,
    LaneReader,
    OnReady,
    SeqStore,
    Sink,
    Source,
    Taken,
)
from pushlane.lanes.ports.dead_addresses import DeadAddresses
from pushlane.lanes.ports.journal import Journal, JournalPage
from pushlane.lanes.ports.lease import Fence, Grant, Lease
from pushlane.lanes.ports.ledger import ClaimResult, Ledger
from pushlane.lanes.ports.limiter import (
    Limiter,
    PlaceAsk,
    Tally,
    TokenAsk,
    TokenGrant,
    TokenReturn,
    TotalAsk,
    Usage,
)
from pushlane.lanes.ports.presence import Presence
from pushlane.lanes.ports.receipt_log import ReceiptLog, ReceiptReader, ReceiptWriter
from pushlane.lanes.ports.recipient_windows import RecipientTurn, RecipientWindows
from pushlane.lanes.ports.suppressions import Suppressions
from pushlane.model.documents import Document, DocumentStore

__all__ = [
    "Broker",
    "Changes",
    "ClaimResult",
    "DeadAddresses",
    "Delayed",
    "Delivery",
    "Document",
    "DocumentStore",
    "Edit",
    "Fence",
    "FoundTasks",
    "Grant",
    "Journal",
    "JournalPage",
    "LaneHistory",
    "LaneReader",
    "Lease",
    "Ledger",
    "Limiter",
    "OnReady",
    "PlaceAsk",
    "Presence",
    "ProgressStore",
    "ReceiptLog",
    "ReceiptReader",
    "ReceiptWriter",
    "RecipientTurn",
    "RecipientWindows",
    "Registry",
    "SeqStore",
    "Sink",
    "Source",
    "Suppressions",
    "Taken",
    "Tally",
    "TaskStore",
    "TokenAsk",
    "TokenGrant",
    "TokenReturn",
    "TotalAsk",
    "Usage",
]
