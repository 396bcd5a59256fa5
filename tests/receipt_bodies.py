"""Bodies of the log of receipts, for tests: what a dispatcher would have written."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from pushlane.model.receipt import ReceiptBatch, TaskLabel, encode_receipts

NOON_MS = 1_790_000_000_000 // 86_400_000 * 86_400_000 + 12 * 3_600_000
_ids = itertools.count()


def body(
    task: str,
    seqs: Sequence[int],
    outcome: str = "delivered",
    *,
    at_ms: int = NOON_MS,
    attempt: int = 1,
    reason: str = "",
    level: str = "high",
    app: str = "shop",
    attributes: dict[str, str] | None = None,
    waits: dict[str, int] | None = None,
    trace_id: str = "",
) -> bytes:
    """Receipts of one task that came out the same way, a millisecond apart."""
    count = len(seqs)
    times = [at_ms + place for place in range(count)]
    return encode_receipts(
        ReceiptBatch(
            version=1,
            batch_id=f"batch-{next(_ids)}",
            sink="webhook",
            tasks=[TaskLabel(task, app, f"the {task}")],
            task=[0] * count,
            seq=list(seqs),
            level=[level] * count,
            outcome=[outcome] * count,
            reason=[reason] * count,
            attempt=[attempt] * count,
            recipient=["d***"] * count,
            recipient_hash=[seq * 7_919 for seq in seqs],
            quota=[1] * count,
            weight=[6] * count,
            submitted_at_ms=[each - 500 for each in times],
            eligible_at_ms=[each - 400 for each in times],
            dispatched_at_ms=[each - 100 for each in times],
            responded_at_ms=times,
            trace_ids=[trace_id] * count if trace_id else [],
            attributes=[attributes] * count if attributes else [],
            waits=None if waits is None else {name: [ms] * count for name, ms in waits.items()},
        )
    )
