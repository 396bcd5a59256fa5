"""What a log of arrivals says of a system: pure functions, the same for all.

A line is written when the work on a push begins. Fairness is judged from a second after the first
arrival until the late task comes, utilisation until the weights change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from bench.fairness_of import WINDOW, jain, longest_gap, share_error
from bench.peers.apps.handler import work_s
from bench.peers.workload import (
    AFTER_CHANGE_S,
    BIN_S,
    CHANGE_AT_S,
    LATE,
    SLOTS,
    Order,
    Times,
)
from dev.receiver import ArrivalLine
from pushlane.core.errors import Unreachable
from pushlane.core.task import Level, Weights

_WARM_UP_S = 1.0
_SEEN_IN = 50
_STILL_COMING = 100


def judge(log: Sequence[ArrivalLine], orders: Sequence[Order], times: Times) -> dict[str, Any]:
    """The figures of one row; a time that never came within the run is None.

    Raises:
        Unreachable: too little arrived to judge.
    """
    begin = times.started_at + _WARM_UP_S
    steady = between(log, begin, times.late_at)
    levels = [arrival.level for arrival in steady]
    if len(levels) < WINDOW:
        raise Unreachable(f"only {len(levels)} pushes arrived before the late task")
    first_s, completion_s = late_times(log, times.late_at)
    jains = jain_by_level(steady, orders)
    return {
        "late_first_push_s": first_s,
        "late_completion_s": completion_s,
        "share": shares(levels),
        "share_error_max": round(share_error(levels, entitled()), 2),
        "gap_max": {level.value: longest_gap(levels, level.value) for level in Level},
        "jain": min(jains.values()),
        "jain_by_level": jains,
        "utilisation": round(utilisation(log, begin, times.started_at + CHANGE_AT_S), 4),
        "duplicates": len(log) - len({(arrival.task, arrival.seq) for arrival in log}),
    }


def between(log: Sequence[ArrivalLine], begin: float, end: float) -> list[ArrivalLine]:
    return [arrival for arrival in log if begin <= arrival.at_s < end]


def entitled(weights: Weights | None = None) -> dict[str, float]:
    by_level = (weights or Weights()).by_level()
    return {level.value: weight / sum(by_level.values()) for level, weight in by_level.items()}


def shares(levels: Sequence[str]) -> dict[str, float]:
    counts = Counter(levels)
    return {level.value: round(counts[level.value] / len(levels), 3) for level in Level}


def jain_by_level(log: Sequence[ArrivalLine], orders: Sequence[Order]) -> dict[str, float]:
    """How evenly the tasks of each level were served; 0 for a level that got nothing."""
    counts = Counter(arrival.task for arrival in log)
    return {
        level.value: round(jain(counts[o.task] for o in orders if o.level is level), 3)
        for level in Level
    }


def utilisation(log: Sequence[ArrivalLine], begin: float, end: float) -> float:
    """The part of the slots' time that went into work."""
    worked = sum(max(0.0, min(a.at_s + work_s(a.seq), end) - max(a.at_s, begin)) for a in log)
    return worked / (SLOTS * (end - begin))


def late_times(log: Sequence[ArrivalLine], late_at: float) -> tuple[float | None, float | None]:
    """Seconds from the submit of the late task to the first and to the last of its pushes."""
    arrived: dict[int, float] = {}
    for arrival in log:
        if arrival.task == LATE.task:
            arrived.setdefault(arrival.seq, arrival.at_s - late_at)
    if not arrived:
        return None, None
    complete = len(arrived) == LATE.pushes
    return round(min(arrived.values()), 3), round(max(arrived.values()), 3) if complete else None


def change_seen_s(log: Sequence[ArrivalLine], changed_at: float) -> float | None:
    """Seconds from the order to reverse weights until 50 arrivals hold more of low than of high."""
    after = between(log, changed_at, changed_at + AFTER_CHANGE_S)
    for end in range(_SEEN_IN, len(after) + 1):
        counts = Counter(arrival.level for arrival in after[end - _SEEN_IN : end])
        if counts[Level.LOW] > counts[Level.HIGH]:
            return round(after[end - 1].at_s - changed_at, 3)
    return None


def silence_s(log: Sequence[ArrivalLine], changed_at: float) -> float:
    """The longest time without an arrival after the weights changed."""
    ats = sorted(a.at_s for a in between(log, changed_at, changed_at + AFTER_CHANGE_S))
    return round(max((later - earlier for earlier, later in pairwise(ats)), default=0.0), 3)


def skipped(log: Sequence[ArrivalLine]) -> list[tuple[str, int]]:
    """The seqs that never came although much later ones of their task did: lost, or put back."""
    seen: dict[str, set[int]] = {}
    for arrival in log:
        seen.setdefault(arrival.task, set()).add(arrival.seq)
    return [
        (task, seq)
        for task, seqs in seen.items()
        for seq in range(1, max(seqs) - _STILL_COMING)
        if seq not in seqs
    ]


def rates(log: Sequence[ArrivalLine], times: Times, bin_s: float = BIN_S) -> dict[str, list[float]]:
    """Arrivals a second in each bin from the first arrival: of each level, and the late task."""
    count = int((times.ended_at - times.started_at) / bin_s)
    bins = {name: [0] * count for name in (*(level.value for level in Level), LATE.task)}
    for arrival in log:
        place = int((arrival.at_s - times.started_at) / bin_s)
        if 0 <= place < count:
            name = arrival.level if arrival.task != LATE.task else LATE.task
            bins[name][place] += 1
    return {name: [number / bin_s for number in numbers] for name, numbers in bins.items()}
