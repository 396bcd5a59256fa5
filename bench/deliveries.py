"""The receiving end's own log: one line a delivery, in the order of arrival."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec


class Delivered(NamedTuple):
    task: str
    seq: int
    level: str
    at_ms: float


class _Line(msgspec.Struct):
    task: str
    seq: int
    level: str = ""
    at_ms: float = 0.0


def read_log(path: Path) -> list[Delivered]:
    """Every delivery in the log, oldest first."""
    decode = msgspec.json.Decoder(_Line).decode
    with path.open("rb") as lines:
        return [
            Delivered(line.task, line.seq, line.level, line.at_ms) for line in map(decode, lines)
        ]


class Account(NamedTuple):
    """What a log says about what was submitted."""

    lost: list[tuple[str, int]]
    duplicates: int


def account(log: Iterable[Delivered], totals: dict[str, int]) -> Account:
    """Which seqs never arrived, and how many arrivals were repeats.

    Args:
        totals: how many pushes each task was submitted with; seqs run from 1.
    """
    seen: dict[str, set[int]] = {task: set() for task in totals}
    duplicates = 0
    for delivered in log:
        seqs = seen[delivered.task]
        duplicates += delivered.seq in seqs
        seqs.add(delivered.seq)
    lost = [
        (task, seq)
        for task, total in totals.items()
        for seq in range(1, total + 1)
        if seq not in seen[task]
    ]
    return Account(lost, duplicates)
