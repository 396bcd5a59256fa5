"""Counts what a dispatcher hands to a sink that does nothing: how fast, what is lost or doubled.

The sink is in the dispatcher's process, as nothing outside would keep up with it. It keeps what was
delivered by task and seq, not a sum, so a push that came twice cannot stand for one that never did.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Outcome

_MARKS = 1_000


class Mark(NamedTuple):
    """So many had been delivered by then, and the process had used so much CPU time."""

    at_s: float
    delivered: int
    cpu_s: float = 0.0


class CountingSink:
    """`totals` says how many pushes each task has, seqs from 1. About a thousand marks are kept."""

    name = "counting"
    batch_size = 256
    mixes_tasks = True
    hosts_code = False

    def __init__(self, totals: Mapping[str, int]) -> None:
        self._seen = {task: bytearray(total + 1) for task, total in totals.items()}
        self._count = 0
        self._mark_at = 0
        self._each = sum(totals.values()) // _MARKS
        self._unseen = len(totals)
        self.duplicates = 0
        self.marks: list[Mark] = []
        self.all_seen_at = 0

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        for delivery in batch:
            push = delivery.push
            seqs = self._seen[push.task_id]
            if seqs[push.seq]:
                self.duplicates += 1
                continue
            if not seqs[0]:
                self._first_of(seqs)
            seqs[push.seq] = 1
        self._count += len(batch)
        if self._count >= self._mark_at:
            self.marks.append(Mark(time.perf_counter(), self._count, time.process_time()))
            self._mark_at = self._count + self._each
        return [DELIVERED] * len(batch)

    async def close(self) -> None:
        return

    def lost(self) -> list[tuple[str, int]]:
        return [
            (task, seq)
            for task, seqs in self._seen.items()
            for seq in range(1, len(seqs))
            if not seqs[seq]
        ]

    def _first_of(self, seqs: bytearray) -> None:
        """Place 0 tells whether a task was seen at all, as no seq is 0."""
        seqs[0] = 1
        self._unseen -= 1
        if not self._unseen:
            self.all_seen_at = self._count


def steady_rate(marks: Sequence[Mark], start: int, end: int) -> float:
    """Deliveries a second between the first mark of `start` or more and the last up to `end`."""
    first, last = _steady(marks, start, end)
    took_s = last.at_s - first.at_s
    return (last.delivered - first.delivered) / took_s if took_s > 0 else 0.0


def steady_cpu_us(marks: Sequence[Mark], start: int, end: int) -> float:
    """Microseconds of CPU time a delivery between the same two marks; 0 where there are no two."""
    first, last = _steady(marks, start, end)
    count = last.delivered - first.delivered
    return (last.cpu_s - first.cpu_s) / count * 1e6 if count else 0.0


def _steady(marks: Sequence[Mark], start: int, end: int) -> tuple[Mark, Mark]:
    inside = [mark for mark in marks if start <= mark.delivered <= end]
    return (inside[0], inside[-1]) if inside else (Mark(0.0, 0), Mark(0.0, 0))
