"""Which receipts count, the same for the pipeline's store and for what reads the log itself.

A push may have several receipts of one kind: its process was killed before it acked, or a body was
appended twice. Of each kind (`kind_of`) one counts: the one that was answered first, and of those
the first in the log, partition by partition. Bodies that `read_receipts` refuses count nowhere.
"""

from __future__ import annotations

from pushlane.core.push import Kind
from pushlane.model.receipt import VERSION, Event, ReceiptBatch, decode_receipts
from pushlane.util.errors import MalformedReceipts

ENDS = (Kind.DELIVERED, Kind.DEAD, Kind.EXPIRED, Kind.DROPPED)

FINISHED = 0
"""The kind of every receipt that says how its push ended."""
DISPLAYED = 1
CLICKED = 2
RETRIED = 3
"""The kind of a retry is this plus its attempt, so that each attempt counts once."""
MOST_ATTEMPTS = 4_000
"""Retries over so many count once together: there is no room for more kinds."""

KINDS = {Kind.RETRY.value: RETRIED, Event.DISPLAYED.value: DISPLAYED, Event.CLICKED.value: CLICKED}
"""The kinds of outcomes that are no end."""

STAGES = {
    "wait": ("eligible_at_ms", "dispatched_at_ms"),
    "delivery": ("dispatched_at_ms", "responded_at_ms"),
    "total": ("submitted_at_ms", "responded_at_ms"),
}
"""The stages of a push in `latency`, each with the times at which it starts and ends."""
CAUSE_STAGE = "wait."
"""Before a cause it is the stage of what a push waited for that; `WAITED` is that of all causes."""
LATENCY_BASE = 1.1
"""Bucket b of `latency` holds milliseconds in [1.1^b, 1.1^(b+1)); bucket -1 is below 1 ms."""

_OUTCOMES = frozenset({*Kind, *Event})
_SEQS = range(1, 2**32)


def kind_of(outcome: str, attempt: int) -> int:
    """Return what a receipt says: receipts of a push that differ in it are counted apart."""
    kind = KINDS.get(outcome, FINISHED)
    return kind + min(attempt, MOST_ATTEMPTS) if kind == RETRIED else kind


def read_receipts(body: bytes) -> ReceiptBatch:
    """Return the receipts in a body of the log.

    Raises:
        UnknownFormat: a newer version wrote them.
        MalformedReceipts: they cannot be used; all of the body is left out.
    """
    batch = decode_receipts(body)
    if batch.version != VERSION:
        raise MalformedReceipts(f"receipts of version {batch.version}; this reads {VERSION}")
    if not _OUTCOMES.issuperset(batch.outcome):
        raise MalformedReceipts("receipts with an unknown outcome")
    if batch.seq and not (min(batch.seq) in _SEQS and max(batch.seq) in _SEQS):
        raise MalformedReceipts("receipts with a seq out of range")
    if batch.attempt and min(batch.attempt) < 0:
        raise MalformedReceipts("receipts with an attempt out of range")
    return batch
