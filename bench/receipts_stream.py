"""How fast the receipts job reads a log into the store, judged by what the log was filled with.

The log is written before, and Spark is started before, since the job runs for days; for the same
reason its first batch, for which Java compiles what it runs, is told apart from the rest. Every
tenth body is there twice; the store must count each receipt once.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.figures import say
from pushlane.model.receipt import ReceiptBatch, TaskLabel, encode_receipts
from pushlane.settings import Settings, load

_TASKS = 20
_IN_BODY = 250
_IN_APPEND = 40
_START_MS = 1_790_000_000_000
_LEVELS = ("high", "medium", "low")


def measure(
    receipts: int = 4_000_000, most_bodies: int = 4_000, *, has_waits: bool = True
) -> dict[str, Any]:
    """Receipts a second, from the first batch's manifest to the last one's, and in the first.

    Besides, the bytes of the tables that have waits, of the store's disk and of the log's bodies.

    Raises:
        AssertionError: the store does not count what the log was filled with.
    """
    from pushlane.pipeline.receipts.job import RunOptions, run_on
    from pushlane.pipeline.receipts.job_context import SessionOptions, open_job_context
    from pushlane.pipeline.store import open_store

    with tempfile.TemporaryDirectory(prefix="pushlane-receipts-") as folder:
        settings = load({"data_dir": Path(folder), "broker": "embedded"})
        written, log_bytes = _fill(settings, receipts, has_waits)
        with open_job_context(settings, SessionOptions()) as work:
            batches = _Batches()
            options = RunOptions(until_idle=True, most_bodies=most_bodies, on_batch=batches.add)
            run_on(work, options, threading.Event())
        _check(settings, receipts)
        sizes = open_store(settings.reports_root).snapshot().tables
    return {
        **batches.rates(),
        "receipts": written,
        "log_bytes": log_bytes,
        "detail_bytes": sizes["detail"].bytes,
        "latency_bytes": sizes["latency"].bytes,
        "latency_rows": sizes["latency"].rows,
    }


class _Batches:
    def __init__(self) -> None:
        self._ends_s = [time.monotonic()]
        self._receipts: list[int] = []

    def add(self, done: Any) -> None:
        say(f"batch {done.number}: {done.receipts:,} receipts in {done.seconds:.1f} s")
        self._ends_s.append(time.monotonic())
        self._receipts.append(done.receipts)

    def rates(self) -> dict[str, int]:
        started_s, first_s, *_, last_s = (*self._ends_s, self._ends_s[-1])
        first, *others = self._receipts
        cold = round(first / (first_s - started_s))
        warm = round(sum(others) / (last_s - first_s)) if others else cold
        return {"receipts_per_s": warm, "first_batch_per_s": cold}


def _fill(settings: Settings, receipts: int, has_waits: bool) -> tuple[int, int]:
    """How many receipts are in the log, with those that are there twice, and their bytes."""
    from pushlane.pipeline.receipts.sync_log import SyncReceiptLog

    bodies: list[bytes] = []
    written = size = 0
    with SyncReceiptLog(settings) as log:
        for number, first in enumerate(range(0, receipts, _IN_BODY)):
            count = min(_IN_BODY, receipts - first)
            copies = 2 if number % 10 == 0 else 1
            one = _body(number, count, has_waits)
            bodies += [one] * copies
            size += len(one) * copies
            written += count * copies
            if len(bodies) >= _IN_APPEND:
                log.append(bodies)
                bodies = []
        if bodies:
            log.append(bodies)
    return written, size


def _body(number: int, count: int, has_waits: bool) -> bytes:
    """Receipts of one task; its bodies follow each other in time."""
    task, turn = number % _TASKS, number // _TASKS
    first = turn * _IN_BODY + 1
    seqs = list(range(first, first + count))
    times = [_START_MS + number * 5 + place // 50 for place in range(count)]
    pairs = list(zip(times, seqs, strict=True))
    sent = [each - 20 - seq % 60 for each, seq in pairs]
    return encode_receipts(
        ReceiptBatch(
            version=1,
            batch_id=str(number),
            sink="webhook",
            tasks=[TaskLabel(f"task-{task:02d}", "shop", f"campaign {task}")],
            task=[0] * count,
            seq=seqs,
            level=[_LEVELS[task % 3]] * count,
            outcome=["delivered" if seq % 25 else "dead" for seq in seqs],
            reason=["" if seq % 25 else "unregistered" for seq in seqs],
            attempt=[1] * count,
            recipient=[f"de…{seq % 1000:03d}" for seq in seqs],
            recipient_hash=[hash((task, seq)) for seq in seqs],
            quota=[1] * count,
            weight=[6] * count,
            submitted_at_ms=[each - 90_000 for each in times],
            eligible_at_ms=[each - 60_000 + seq % 977 for each, seq in pairs],
            dispatched_at_ms=sent,
            responded_at_ms=times,
            waits=_waits([90_000 - at + each for at, each in zip(times, sent, strict=True)])
            if has_waits
            else None,
        )
    )


def _waits(took_ms: Sequence[int]) -> dict[str, list[int]]:
    """Four causes that add up: most of a wait is others' turns, and some of it few had."""
    parts: dict[str, list[int]] = {"share": [], "slot": [], "feed": [], "retry": []}
    for place, took in enumerate(took_ms):
        feed, retry = place * 7_919 % 400, 2_000 if place % 20 == 0 else 0
        slot = (took - feed - retry) * (10 + place * 31 % 30) // 100
        for cause, ms in zip(parts, (took - feed - retry - slot, slot, feed, retry), strict=True):
            parts[cause].append(ms)
    return parts


def _check(settings: Settings, receipts: int) -> None:
    import pyarrow.parquet as pq

    from pushlane.pipeline.store import open_store

    store = open_store(settings.reports_root)
    counted = sum(sum(pq.read_table(path)["n"].to_pylist()) for path in store.counted())
    rows = store.snapshot().tables["detail"].rows
    assert (counted, rows) == (receipts, receipts), f"{counted} counted, {rows} rows of {receipts}"
