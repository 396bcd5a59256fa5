"""Decides where a job resumes, from the manifests, the log and Spark's checkpoint.

The manifests alone say how far the store is. A checkpoint that is damaged, or continues elsewhere,
is set aside and named. Receipts that the log dropped unread, as it does at its bound with
`receipts=on`, are noted as a gap in a manifest, so that a report of that time can be told from a
whole one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from pushlane.lanes.task_transitions import now_ms
from pushlane.pipeline.receipts.log_source import as_positions
from pushlane.pipeline.receipts.sync_log import SyncReceiptLog
from pushlane.pipeline.store import Gap, StoreState, StoreWriter


def set_aside_unfit_checkpoint(checkpoint: Path, positions: Sequence[str]) -> str:
    """Rename the checkpoint if Spark cannot continue from it; return what was wrong, or empty."""
    if not checkpoint.exists():
        return ""
    wrong = _what_is_wrong(checkpoint, positions)
    if not wrong:
        return ""
    aside = _free(checkpoint)
    checkpoint.rename(aside)
    return (
        f"{checkpoint} {wrong}: it was set aside as {aside.name}, and the store's manifest counts"
    )


def _what_is_wrong(checkpoint: Path, positions: Sequence[str]) -> str:
    """Return why the checkpoint does not fit the positions; empty if it does.

    Spark repeats a batch that it has planned and not committed, so the positions may be either end
    of that batch.
    """
    try:
        planned = _numbered(checkpoint / "offsets")
        done = _numbered(checkpoint / "commits")
        if not planned:
            return "plans nothing" if done else ""
        places = [_offset(planned[number]) for number in sorted(planned)[-2:]]
    except (OSError, ValueError, KeyError, IndexError, AttributeError):
        return "cannot be read"
    if list(positions) == places[-1]:
        return ""
    is_pending = max(planned) not in done
    if is_pending and (len(planned) == 1 or list(positions) == places[0]):
        return ""
    return "goes on elsewhere than the store"


def _numbered(folder: Path) -> dict[int, Path]:
    return {int(path.name): path for path in folder.iterdir() if path.name.isdigit()}


def _offset(path: Path) -> list[str]:
    """Return the positions in a file of Spark's offset log: a version, Spark's notes, positions."""
    return as_positions(json.loads(path.read_text().splitlines()[2]))


def _free(checkpoint: Path) -> Path:
    taken = sum(1 for _ in checkpoint.parent.glob(f"{checkpoint.name}-aside-*"))
    return checkpoint.with_name(f"{checkpoint.name}-aside-{taken + 1}")


def resume_positions(writer: StoreWriter, log: SyncReceiptLog) -> tuple[list[str], str]:
    """Return the positions to begin at, and a note on missing receipts; empty if none are missing.

    Spark's checkpoint may plan to read what is gone, so it is removed first: a job without one
    begins where the manifests end.
    """
    positions = writer.state.positions
    if positions is None:
        _remove(writer.generation.checkpoint)
        return log.first(), ""
    kept = log.kept(positions)
    if kept == positions:
        return positions, ""
    gaps = _gaps(writer.state, positions, kept)
    _remove(writer.generation.checkpoint)
    writer.publish("gap", writer.begin(), positions=kept, gaps=gaps)
    return kept, _describe(gaps)


def _gaps(state: StoreState, positions: list[str], kept: list[str]) -> list[Gap]:
    at_ms = now_ms()
    return [
        Gap(place, start, end, state.last_batch_at_ms, at_ms)
        for place, (start, end) in enumerate(zip_longest(positions, kept, fillvalue=""))
        if start != end
    ]


def _remove(checkpoint: Path) -> None:
    if checkpoint.exists():
        shutil.rmtree(checkpoint)


def _describe(gaps: list[Gap]) -> str:
    count = len(gaps)
    partitions = "a partition" if count == 1 else f"{count} partitions"
    return (
        f"the log has dropped receipts of {partitions} that were not read yet, and goes on with "
        "its oldest; `pushlane pipeline status` shows where. Raise receipts_max_bytes, set "
        "receipts=required, or keep `pushlane pipeline run` going"
    )
