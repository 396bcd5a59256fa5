"""What the receiving end's own log says about what was submitted: lost, and delivered twice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from bench.figures import say
from dev.receiver import ArrivalLine

_LOST_TOLD = 20


class Account(NamedTuple):
    """The seqs that never arrived, and how many arrivals were repeats."""

    lost: list[tuple[str, int]]
    duplicates: int


def account(log: Iterable[ArrivalLine], totals: dict[str, int]) -> Account:
    """Compare a log with `totals`: how many pushes each task was submitted with, seqs from 1."""
    seen: dict[str, set[int]] = {task: set() for task in totals}
    duplicates = 0
    for arrival in log:
        seqs = seen[arrival.task]
        duplicates += arrival.seq in seqs
        seqs.add(arrival.seq)
    lost = [
        (task, seq)
        for task, total in totals.items()
        for seq in range(1, total + 1)
        if seq not in seen[task]
    ]
    return Account(lost, duplicates)


def tell_lost(lost: list[tuple[str, int]]) -> None:
    """Name the first ones."""
    for task, seq in lost[:_LOST_TOLD]:
        say(f"lost: task {task}, seq {seq}")
