"""Shows the pipeline's batches and its status on a terminal and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec

from pushlane.cli.times import age_text, time_text
from pushlane.lanes.task_transitions import now_ms

if TYPE_CHECKING:
    from pushlane.pipeline.receipts.batch import BatchDone
    from pushlane.pipeline.receipts.status import Status
    from pushlane.pipeline.store import Gap

_GAPS = 8


def batch_line(done: BatchDone) -> str:
    """Return one line for a batch that was published."""
    rate = done.receipts / max(done.seconds, 1e-3)
    parts = [
        f"batch {done.number}: {done.receipts:,} receipts in {done.seconds:.1f} s ({rate:,.0f}/s)",
        f"{done.lag:,} bodies left",
    ]
    if done.duplicates:
        parts.append(f"{done.duplicates:,} repeats dropped")
    if done.quarantined:
        parts.append(f"{done.quarantined:,} bodies set aside")
    if not done.mode.is_full:
        parts.append(f"detail rows: {done.mode.rate:.1%} sample, since {done.mode.why}")
    return ", ".join(parts)


def status_fields(status: Status) -> list[tuple[str, str]]:
    snapshot = status.snapshot
    counts = snapshot.counts
    sampled = [each for each in snapshot.intervals if each.state == "sampled"]
    gone = [each for each in snapshot.intervals if each.state == "gone"]
    fields = [
        ("job", "running" if status.is_running else "not running"),
        ("generation", snapshot.generation),
        ("last batch", f"{snapshot.last_batch} ({_ago(snapshot.last_batch_at_ms)})"),
        ("lag", _lag(status)),
        ("mode", status.mode),
        ("receipts", f"{counts.receipts:,} in {counts.bodies:,} bodies"),
        ("repeats", f"{counts.duplicates:,}"),
        ("quarantined", f"{counts.quarantined:,} bodies"),
        ("sampled", f"{len(sampled)} batches to be filled up, {len(gone)} not kept by the log"),
        ("positions", " ".join(snapshot.positions or ["-"])),
        *(("missing", _missing(gap)) for gap in snapshot.gaps[-_GAPS:]),
    ]
    tables = [
        (table, f"{size.rows:,} rows in {size.files:,} files, {size.bytes:,} bytes")
        for table, size in snapshot.tables.items()
        if size.files
    ]
    return fields + tables


def status_json(status: Status) -> dict[str, Any]:
    snapshot = status.snapshot
    return {
        "running": status.is_running,
        "generation": snapshot.generation,
        "manifest": snapshot.manifest,
        "last_batch": snapshot.last_batch,
        "last_batch_at_ms": snapshot.last_batch_at_ms,
        "lag": status.lag,
        "missing": status.is_missing,
        "mode": status.mode,
        "positions": snapshot.positions,
        "counts": msgspec.to_builtins(snapshot.counts),
        "gaps": msgspec.to_builtins(snapshot.gaps),
        "intervals": msgspec.to_builtins(snapshot.intervals),
        "tables": {table: asdict(size) for table, size in snapshot.tables.items()},
    }


def _lag(status: Status) -> str:
    lag = f"{status.lag:,} bodies"
    return f"{lag}, and the log has dropped some that were not read" if status.is_missing else lag


def _missing(gap: Gap) -> str:
    return (
        f"partition {gap.partition} from {gap.start} to {gap.end}, dropped by the log between "
        f"{time_text(gap.since_ms)} and {time_text(gap.at_ms)}"
    )


def _ago(at_ms: int) -> str:
    return f"{time_text(at_ms)}, {age_text(at_ms, now_ms())} ago" if at_ms else "none yet"
