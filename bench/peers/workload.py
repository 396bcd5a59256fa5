"""What every system is given, at which times, and what is noted of how it went."""

from __future__ import annotations

from typing import NamedTuple

from pushlane.core.task import Level

SLOTS = 50
LATE_AT_S = 10.0
CHANGE_AT_S = 20.0
END_AT_S = 30.0
AFTER_CHANGE_S = 10.0
BIN_S = 1.0
NEW_WEIGHTS = "1:3:6"
_A_LEVEL = 5
_PUSHES = 2_000
_FIRST_IS_LARGER = 5


class Order(NamedTuple):
    """A task to be submitted."""

    task: str
    level: Level
    pushes: int

    def line(self) -> str:
        return f"task {self.task} {self.level.value} {self.pushes}"


class Times(NamedTuple):
    """Unix seconds of a run: the first arrival, the late task's submit, the new weights, the end.

    `changed_at` is None for a system that has nothing to change.
    """

    started_at: float
    late_at: float
    changed_at: float | None
    ended_at: float


LATE = Order("late", Level.HIGH, 100)


def backlog() -> list[Order]:
    """Five tasks a level, the first of the high ones five times larger: no level runs dry."""
    orders = [
        Order(f"{level.value}-{number}", level, _PUSHES)
        for level in Level
        for number in range(1, _A_LEVEL + 1)
    ]
    first = orders[0]
    return [first._replace(pushes=_FIRST_IS_LARGER * _PUSHES), *orders[1:]]
