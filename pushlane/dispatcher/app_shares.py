"""How much of a level each app may have: its quota in every level, and its part of the high one."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TypeVar

from pushlane.dispatcher.level_ring import WHOLE, LevelRing
from pushlane.lanes.limits import EVERY_APP

LaneT = TypeVar("LaneT", bound=Hashable)


class AppShares:
    """The quotas of apps, and their parts in thousandths; `*` is for every app without its own."""

    def __init__(self) -> None:
        self._quotas: dict[str, int] = {}
        self._parts: dict[str, int] = {}

    @property
    def has_parts(self) -> bool:
        """Tell whether some app may not have all of the high level."""
        return any(part < WHOLE for part in self._parts.values())

    def quota(self, app: str) -> int:
        return self._quotas.get(app) or self._quotas.get(EVERY_APP, 1)

    def part(self, app: str) -> int:
        return self._parts.get(app) or self._parts.get(EVERY_APP, WHOLE)

    def set_quota(self, app: str, quota: int | None) -> None:
        _set(self._quotas, app, quota)

    def set_part(self, app: str, part: float | None) -> None:
        _set(self._parts, app, None if part is None else min(max(1, round(part * WHOLE)), WHOLE))


def _set(values: dict[str, int], app: str, value: int | None) -> None:
    if value is None:
        values.pop(app, None)
    else:
        values[app] = value


def concerned(ring: LevelRing[LaneT], app: str) -> list[str]:
    """List the apps of a level that a quota or part of this app, or of every app, is about."""
    return [name for name in ring.apps if app in (name, EVERY_APP)]


def fine_scale(others: Sequence[int]) -> int:
    """Return by what to multiply weights so that `hand_over` divides without a rest.

    `others` are the weights of the levels but the high one.
    """
    return WHOLE * math.prod(weight or 1 for weight in (*others, sum(others)))


def hand_over(high: LevelRing[LaneT], others: Sequence[LevelRing[LaneT]], scale: int) -> None:
    """Lower the weight of the high level to what its ready apps may have of it together.

    The others have the rest, by their weights: the sum stays as it is.
    """
    rest = sum(ring.nominal for ring in others)
    if high.part == WHOLE or not rest:
        return
    given_up = high.nominal * (WHOLE - high.part) * (scale // WHOLE)
    high.weight -= given_up
    for ring in others:
        ring.weight += given_up * ring.nominal // rest
