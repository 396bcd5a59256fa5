"""Receipts when a dispatcher is killed in mid-run: what was counted has one, on real processes."""

from __future__ import annotations

import asyncio
from collections import Counter

from pushlane.backends.backend import Backend, connect
from pushlane.core.push import Kind
from pushlane.model.receipt import ReceiptBatch, decode_receipts
from pushlane.settings import Settings
from tests.processes import Push, Pushlane, Received

TOTAL = 6_000
KILLED_AT = 2_000


async def batches(backend: Backend) -> list[ReceiptBatch]:
    log = backend.receipts
    start = await log.first()
    end = await log.advance(start)
    return [
        decode_receipts(body)
        for partition in range(len(start))
        async for page in log.read(partition, start[partition], end[partition])
        for body in page
    ]


def delivered(found: list[ReceiptBatch]) -> Counter[Push]:
    """How often each push has a receipt of its delivery."""
    return Counter(
        (batch.tasks[task].task_id, seq)
        for batch in {batch.batch_id: batch for batch in found}.values()
        for task, seq, outcome in zip(batch.task, batch.seq, batch.outcome, strict=True)
        if outcome == Kind.DELIVERED
    )


def look(pushlane: Pushlane, task_id: str) -> tuple[set[Push], Counter[Push]]:
    """The pushes that the registry counts as finished, and those that have receipts."""

    async def ask() -> tuple[set[Push], Counter[Push]]:
        async with connect(Settings(**pushlane.settings)) as backend:
            seqs = range(1, TOTAL + 1)
            finished = await backend.registry.finished(task_id, seqs)
            counted = {
                (task_id, seq) for seq, is_over in zip(seqs, finished, strict=True) if is_over
            }
            return counted, delivered(await batches(backend))

    return asyncio.run(ask())


def test_what_was_counted_before_a_kill_has_a_receipt(
    pushlane: Pushlane, receiver: Received
) -> None:
    task_id = pushlane.submit("high", TOTAL)
    first = pushlane.dispatch("--slots", "20", "--sink", receiver.sink)
    receiver.until(KILLED_AT, first)
    first.kill()

    counted, receipts = look(pushlane, task_id)

    assert 0 < len(counted) < TOTAL
    assert counted <= set(receipts)


def test_after_a_kill_every_push_has_a_receipt_in_the_end(
    pushlane: Pushlane, receiver: Received
) -> None:
    task_id = pushlane.submit("high", TOTAL)
    first = pushlane.dispatch("--slots", "20", "--sink", receiver.sink)
    receiver.until(KILLED_AT, first)
    first.kill()

    pushlane.drain(receiver.sink)

    _, receipts = look(pushlane, task_id)
    assert set(receipts) == {(task_id, seq) for seq in range(1, TOTAL + 1)}
