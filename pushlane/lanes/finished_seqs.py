"""Tells of single seqs whether they have ended, by asking for the pages that they lie in."""

from __future__ import annotations

from collections.abc import Sequence

from pushlane.core.task import Span
from pushlane.lanes.ports import ProgressStore

_PAGE = 8192  # 1 KiB of bits


async def finished_seqs(store: ProgressStore, task_id: str, seqs: Sequence[int]) -> list[bool]:
    """Return for each of these seqs whether it was recorded; see `ProgressStore.finished`."""
    pages = list({seq // _PAGE for seq in seqs})
    spans = [Span(task_id, page * _PAGE, page * _PAGE + _PAGE - 1, moves=False) for page in pages]
    ended = dict(zip(pages, await store.gone(spans), strict=True))
    return [bool(ended[seq // _PAGE] >> seq % _PAGE & 1) for seq in seqs]
