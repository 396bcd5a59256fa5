"""What each lane is entitled to of its sink: its level's weight, its app's part, its own quota.

As the scheduler shares when all have something to send: levels by their weights, apps of a level by
their quotas, an app's tasks by theirs. A lane of the pool, which mixes apps, counts as an app with
one task of quota 1. What one may not take by its limit goes to the others in the same way (weighted
max-min fairness).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from pushlane.core.task import Level
from pushlane.model.load import SinkLoad, Standing

_APP = "app "


class _Part:
    """A level, an app or a lane: its weight among its siblings, and the most that it may take."""

    def __init__(self, weight: float, most_per_s: float) -> None:
        self.weight = weight
        self.own_most_per_s = most_per_s
        self.parts: dict[str, _Part] = {}

    def part(self, name: str, weight: float, most_per_s: float) -> _Part:
        if (found := self.parts.get(name)) is None:
            found = self.parts[name] = _Part(weight, most_per_s)
        return found

    @property
    def most_per_s(self) -> float:
        if not self.parts:
            return self.own_most_per_s
        return min(self.own_most_per_s, sum(part.most_per_s for part in self.parts.values()))

    def share_out(self, amount: float, found: dict[str, float], name: str = "") -> None:
        """Give each lane below its part of the amount."""
        if not self.parts:
            found[name] = amount
            return
        parts = list(self.parts.items())
        wants = [(part.weight, part.most_per_s) for _, part in parts]
        for (below, part), given in zip(parts, _filled(wants, amount), strict=True):
            part.share_out(given, found, below)


def entitled_shares(load: SinkLoad, standings: Iterable[Standing]) -> dict[str, float]:
    """Return by lane the part of the sink, from 0 to 1, that is its own whatever the limits."""
    return _shared_out(load, _tree(load, standings, is_limited=False), 1.0)


def entitled_rates(load: SinkLoad, standings: Iterable[Standing], per_s: float) -> dict[str, float]:
    """Return by lane the pushes a second that it gets of a sink that takes `per_s`."""
    return _shared_out(load, _tree(load, standings, is_limited=True), per_s)


def _shared_out(load: SinkLoad, root: _Part, amount: float) -> dict[str, float]:
    found: dict[str, float] = {}
    if root.parts:
        _keep_to_high_parts(load, root, amount)
        root.share_out(amount, found)
    return found


def _tree(load: SinkLoad, standings: Iterable[Standing], *, is_limited: bool) -> _Part:
    root = _Part(1, math.inf)
    weights = load.weights.by_level()
    for one in standings:
        task = one.task
        level = root.part(task.level, weights[task.level], math.inf)
        most_per_s = [math.inf, math.inf]
        if is_limited:
            most_per_s = [load.most_per_s("app", task.app), load.most_per_s("task", task.id)]
        if task.pooled:
            level.part(f"lane {task.lane}", 1, math.inf).part(task.lane, 1, min(most_per_s))
        else:
            app = level.part(_APP + task.app, _app_quota(load, task.app), most_per_s[0])
            app.part(task.lane, task.quota, most_per_s[1])
    return root


def _keep_to_high_parts(load: SinkLoad, root: _Part, amount: float) -> None:
    """Let apps have no more of high than their part, while there is anybody else."""
    high = root.parts.get(Level.HIGH)
    if high is None or len(root.parts) == len(high.parts) == 1:
        return
    total = sum(level.weight for level in root.parts.values())
    of_high = amount * high.weight / total if total else 0.0
    for name, app in high.parts.items():
        part = load.limit("app", name.removeprefix(_APP), "high_part")
        if part is not None:
            app.own_most_per_s = min(app.own_most_per_s, part * of_high)


def _app_quota(load: SinkLoad, app: str) -> int:
    return load.limit("app", app, "quota") or 1


def _filled(wants: Sequence[tuple[float, float]], amount: float) -> list[float]:
    """Share an amount by weight; what one cannot take is shared among the others.

    Parts of weight 0 get what nobody else can take.
    """
    given = _by_weight([(weight, most) for weight, most in wants], amount)
    left = amount - sum(given)
    if left > 0 and any(weight == 0 for weight, _ in wants):
        rest = _by_weight([(float(weight == 0), most) for weight, most in wants], left)
        return [one + more for one, more in zip(given, rest, strict=True)]
    return given


def _by_weight(wants: Sequence[tuple[float, float]], amount: float) -> list[float]:
    given = [0.0] * len(wants)
    open_ = [place for place, (weight, _) in enumerate(wants) if weight > 0]
    while open_:
        each = amount / sum(wants[place][0] for place in open_)
        full = {place for place in open_ if wants[place][1] <= each * wants[place][0]}
        for place in full or open_:
            given[place] = wants[place][1] if full else each * wants[place][0]
            amount -= given[place]
        open_ = [place for place in open_ if place not in full] if full else []
    return given
