"""Receipts: the durable record of outcomes, and the bytes in which they travel.

A batch is a msgpack array of columns, not of rows: the dispatcher fills it at the cost of a few
appends a push, and a reader has Arrow arrays without touching a row. Fields may be added at the
end, never moved; all else is a higher version, at which a reader stops. A receipt holds no
recipient: only enough of it to recognise, and a keyed hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from pushlane.core.errors import UnknownFormat
from pushlane.core.push import require_known
from pushlane.util.errors import MalformedReceipts

VERSION = 1
_WHAT = "a batch of the receipts log"
_REST = "…"
_SHOWS_TWO = 12


class Event(StrEnum):
    """A later event on the device. A receipt's outcome is one of these, or a `core.push.Kind`."""

    DISPLAYED = "displayed"
    CLICKED = "clicked"


class TaskLabel(msgspec.Struct, frozen=True, array_like=True):
    """The values that all receipts of one task in a batch share."""

    task_id: str
    app: str
    name: str


class ReceiptBatch(msgspec.Struct, array_like=True):
    """Receipts of one process, one entry a column for each.

    `batch_id` is the same when a batch was appended twice. `task` is an index into `tasks`.
    `outcome` is a Kind or an Event. `recipient` is masked and `recipient_hash` a keyed 64-bit
    hash. `quota` and `weight` are those of the task and of its level at the dispatch. Times are
    Unix milliseconds, 0 when there is none: it was submitted, it could first be sent (this
    attempt), it went to the sink, the sink answered. An empty `trace_ids` or `attributes` means
    that no receipt of the batch has any. `waits` has a column for each cause that occurs (a
    `model.waits.Cause`, or one of a newer version): the milliseconds from submitted to dispatched
    that were spent so. None where the writer did not tell (an older version, an event).
    """

    version: int
    batch_id: str
    sink: str
    tasks: list[TaskLabel]
    task: list[int]
    seq: list[int]
    level: list[str]
    outcome: list[str]
    reason: list[str]
    attempt: list[int]
    recipient: list[str]
    recipient_hash: list[int]
    quota: list[int]
    weight: list[int]
    submitted_at_ms: list[int]
    eligible_at_ms: list[int]
    dispatched_at_ms: list[int]
    responded_at_ms: list[int]
    trace_ids: list[str] = []
    attributes: list[dict[str, str] | None] = []
    waits: dict[str, list[int]] | None = None

    def __len__(self) -> int:
        return len(self.seq)

    def __repr__(self) -> str:
        return f"ReceiptBatch({self.batch_id}, {len(self)} receipts)"


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ReceiptBatch)


def encode_receipts(batch: ReceiptBatch) -> bytes:
    """Return the bytes of a batch as they travel."""
    return _encoder.encode(batch)


def decode_receipts(body: bytes) -> ReceiptBatch:
    """Return the batch in these bytes.

    Raises:
        UnknownFormat: they are a batch of a higher version.
        MalformedReceipts: the bytes are no batch, or one whose columns are not of one length.
    """
    try:
        batch = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        require_known(body, VERSION, _WHAT)
        raise MalformedReceipts(f"{len(body)} bytes of the receipts log are not a batch") from error
    if batch.version > VERSION:
        raise UnknownFormat(batch.version, _WHAT)
    columns = [getattr(batch, name) for name in _COLUMNS]
    optional = [column for column in (batch.trace_ids, batch.attributes) if column]
    waits = (batch.waits or {}).values()
    is_whole = {len(column) for column in (*columns, *optional, *waits)} == {len(batch)}
    if not is_whole or not all(0 <= index < len(batch.tasks) for index in batch.task):
        raise MalformedReceipts(f"the columns of {batch!r} do not fit together")
    return batch


_COLUMNS = ReceiptBatch.__struct_fields__[4:18]


def waits_of(batch: ReceiptBatch, row: int) -> dict[str, int] | None:
    """Return the parts of a receipt's wait by cause, in ms; None where its writer did not tell.

    That holds, too, for one that has no part though it waited, and for one that was never sent.
    """
    if batch.waits is None:
        return None
    found = {cause: parts[row] for cause, parts in batch.waits.items() if parts[row] > 0}
    is_told = found or 0 < batch.dispatched_at_ms[row] <= batch.submitted_at_ms[row]
    return found if is_told else None


def masked_recipients(recipients: Sequence[str]) -> list[str]:
    """Show of each its first and last characters: two at most, in all no more than a third."""
    return [
        one[: (most := 2 if len(one) >= _SHOWS_TWO else len(one) // 6)]
        + _REST
        + one[len(one) - most :]
        for one in recipients
    ]
