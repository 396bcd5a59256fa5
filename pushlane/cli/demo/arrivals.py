"""Follows a receiver's log of arrivals while it grows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec


class ArrivalLine(NamedTuple):
    """One delivery as the receiving end saw it; `at_s` is Unix time in seconds."""

    task: str
    seq: int
    level: str
    at_s: float


class Follower:
    """Reads a growing log; only whole lines count. `ids` are of tasks that it has by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ids: dict[str, str] = {}
        self._offset = 0
        self.arrivals: list[ArrivalLine] = []
        self.counts: Counter[str] = Counter()

    def read(self) -> Sequence[ArrivalLine]:
        """Return the arrivals since the last call."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as log:
            log.seek(self._offset)
            data = log.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        new = [
            ArrivalLine(
                self.ids.get(line["task"], line["task"]),
                line["seq"],
                line["level"],
                line["at_ms"] / 1000,
            )
            for line in msgspec.json.Decoder().decode_lines(whole)
        ]
        self.arrivals += new
        self.counts.update(arrival.task for arrival in new)
        return new

    def first(self, task: str) -> float | None:
        return next((arrival.at_s for arrival in self.arrivals if arrival.task == task), None)

    def last(self, task: str) -> float | None:
        return next(
            (arrival.at_s for arrival in reversed(self.arrivals) if arrival.task == task), None
        )
