"""Whose turn is it? Pure, with no clock and no I/O: O(1) a pick, however many lanes there are.

Levels share by smooth weighted round-robin (the algorithm of nginx's upstream balancer): every
pick, each level with a ready lane earns its weight, and the one that has earned most pays the
total. So 6:3:1 gives h m h h m h l h m h, never six highs in a row. Inside a level apps take
turns, each of up to its quota, and inside an app its ready lanes do (`core.rings`).

An app may have a part of the high level only. When those that are ready there may not have all of
it together, the level weighs less, and the others have the rest.

A lane whose deliveries hold their slots for longer than others' costs more: its next turn comes
after so many rounds of its level, and its level is billed for what it holds. Who finds out which
lanes these are is off a push's way; while there are none, nothing of this changes a pick.

It never blocks: a lane that cannot move is told to rest, and is out of the way until it is ready.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Generic

from pushlane.core.rings import MOST_ROUNDS, WHOLE, LaneEntry, LaneT, LevelRing
from pushlane.core.task import Level, Weights

EVERY_APP = "*"
"""What is set for it holds for every app that has nothing of its own."""

_KEPT_PART = 10  # a level of long deliveries leaves a tenth of the slots to others
_SPREAD = 3.0  # standard deviations that a level may hold over its share of slots
_FORGIVEN = 0.7  # of its share of slots: a level that holds less owes nothing any more


class Scheduler(Generic[LaneT]):
    """Chooses the next lane to serve.

    `pick` says whose turn it is, and says the same until something changes; `charge` accounts for
    one push sent from it, which holds one of `slots` until `slots_freed`. A lane that turned out to
    have nothing is told to `rest` and costs its level nothing. With 0 slots nobody counts them.
    """

    def __init__(self, weights: Weights | None = None, slots: int = 0) -> None:
        self._slots = slots
        self._kept = slots // _KEPT_PART
        by_level = (weights or Weights()).by_level()
        self._rings: dict[Level, LevelRing[LaneT]] = {
            level: LevelRing(by_level[level]) for level in Level
        }
        self._active: list[LevelRing[LaneT]] = []
        self._aside: list[LevelRing[LaneT]] = []
        self._held_back: list[LevelRing[LaneT]] = []
        self._total = 0
        self._picked: LevelRing[LaneT] | None = None
        self._picks = 0
        self._entries: dict[LaneT, LaneEntry[LaneT]] = {}
        self._apps = AppShares()
        self._scale = 1
        self._high_part = WHOLE

    def add(self, lane: LaneT, level: Level, quota: int = 1, app: str = "") -> None:
        """Know a lane. It rests until it is ready, and then is the next of its app.

        A new app is the next of its level. A lane of no app takes turns as if it were one.
        """
        part = self._apps.part(app) if level is Level.HIGH else WHOLE
        ring = self._rings[level]
        self._entries[lane] = ring.know(lane, quota, app, self._apps.quota(app), part)

    def remove(self, lane: LaneT) -> None:
        self.rest(lane)
        entry = self._entries.pop(lane)
        entry.level.forget(entry)

    def app_quota(self, app: str) -> int:
        return self._apps.quota(app)

    def set_app_quota(self, app: str, quota: int | None) -> None:
        """Set how many pushes an app sends in its turn, at once; None is as for every app, `*`."""
        self._apps.set_quota(app, quota)
        for ring in self._rings.values():
            for name in concerned(ring, app):
                ring.set_app_quota(name, self._apps.quota(name))

    def set_high_part(self, app: str, part: float | None) -> None:
        """Give an app at most this part (0 to 1) of what the high level has by its weight, at once.

        That holds while another app or level has something ready. None is as for every app, `*`.
        """
        self._apps.set_part(app, part)
        high = self._rings[Level.HIGH]
        for name in concerned(high, app):
            high.set_part(name, self._apps.part(name))
        self._refine()
        self._weigh()

    def ready(self, lane: LaneT) -> None:
        """Note that a lane has something to send; one served before goes to its queue's end."""
        entry = self._entries[lane]
        if not entry.ready:
            ring = entry.level
            was_empty = not ring.count
            ring.wake(entry)
            if was_empty:
                self.forgive()
            elif self._scale > 1:
                self._weigh_again()

    def rest(self, lane: LaneT, *, is_next: bool = False) -> None:
        """Note that a lane cannot move: empty, paused or held back. Its turn, if any, is over.

        With `is_next` it counts as never served when it is ready again.
        """
        entry = self._entries[lane]
        if entry.ready:
            ring = entry.level
            ring.rest(entry)
            entry.is_new = entry.is_new or is_next
            if ring.count == 0:
                self._update()
            elif self._scale > 1:
                self._weigh_again()

    def set_quota(self, lane: LaneT, quota: int) -> None:
        """Takes effect at once: a turn that has used it up ends with its next push."""
        self._entries[lane].quota = quota

    def set_rounds(self, lane: LaneT, rounds: int) -> None:
        """Every so many rounds of its level it has a turn, `MOST_ROUNDS` at most; 1 is usual.

        Nothing happens to a lane that was removed: pushes of it may still be in flight.
        """
        if entry := self._entries.get(lane):
            entry.ring.set_rounds(entry, min(rounds, MOST_ROUNDS))

    def set_long(self, level: Level, is_long: bool) -> None:
        """Say whether its deliveries are long: it then leaves a tenth of the slots to others."""
        ring = self._rings[level]
        if ring.is_long != is_long:
            ring.is_long = is_long
            self._weigh()

    def bill(self, level: Level, picks: float, most: float) -> None:
        """Charge a level for so many picks that it did not make, while another has a ready lane.

        It steps aside until the others have made as many as that is worth, by the weights; it owes
        no more than its part of `most` picks.
        """
        ring = self._rings[level]
        if ring.count and any(one.count for one in self._rings.values() if one is not ring):
            ring.debt = min(ring.debt + picks, most * self._part(ring))
            self.forgive()

    def forgive(self) -> None:
        """Forgive a level that holds fewer slots than its part: it has given up enough."""
        for ring in self._rings.values():
            if ring.count and ring.held + 1 <= _FORGIVEN * self._slots * self._part(ring):
                ring.debt = 0.0
        self._update()

    def _part(self, ring: LevelRing[LaneT]) -> float:
        """Return its share among the levels that have a ready lane."""
        weights = sum(other.weight for other in self._rings.values() if other.count)
        return ring.weight / weights if weights else 1.0

    def slot_taken(self, level: Level) -> None:
        """Count a push of this level that is not charged: it holds a slot as well."""
        self._rings[level].held += 1

    def slots_freed(self, level: Level, count: int) -> None:
        """Count off pushes of this level that have landed."""
        self._rings[level].held -= count

    def has_ready(self, level: Level) -> bool:
        return self._rings[level].count > 0

    def quota(self, lane: LaneT) -> int:
        return self._entries[lane].quota

    def set_weights(self, weights: Weights) -> None:
        """Takes effect with the next pick, from a clean slate: old debts were in old shares."""
        for level, weight in weights.by_level().items():
            self._rings[level].nominal = weight
            self._rings[level].lag = 0
            self._rings[level].debt = 0.0
        self._scale = 1
        self._refine()
        self._weigh()
        self._update()
        self._set_active(self._active)

    def weights(self) -> dict[Level, int]:
        return {level: ring.nominal for level, ring in self._rings.items()}

    def pick(self) -> LaneT | None:
        """Return the lane whose turn it is; None if all rest, or free slots are kept for others."""
        if self._held_back:
            self._held_back.clear()
        best = None
        most = 0
        for ring in self._active:
            earned = ring.lag + ring.weight
            if best is None or earned > most:
                if ring.held < ring.cap or self._may_take(ring):
                    best, most = ring, earned
                else:
                    self._held_back.append(ring)
        self._picked = best
        return (best.serving or best.serve()).lane if best is not None else None

    def charge(self) -> None:
        """Count a push that went out from the lane of the last `pick`."""
        picked = self._picked
        assert picked is not None
        for ring in self._active:
            ring.lag += ring.weight
        picked.lag -= self._total
        self._picks += 1
        picked.charge()
        if self._held_back:
            self._bound_lag(picked)
        if self._aside:
            self._pay_off()

    def _bound_lag(self, picked: LevelRing[LaneT]) -> None:
        """Let levels that are held back earn no hoard: the picked one pays that much less."""
        for ring in set(self._held_back):
            if ring.lag > self._total:
                ring.lag -= ring.weight
                picked.lag += ring.weight

    def _pay_off(self) -> None:
        """Lower the debts of levels that stepped aside by what this pick is worth to them."""
        for ring in self._aside:
            ring.debt -= ring.weight / max(1, self._total)
        if any(ring.debt <= 0 for ring in self._aside):
            self._update()

    def _update(self) -> None:
        """Which levels take part: those that have a ready lane and owe nothing."""
        ready = [ring for ring in self._rings.values() if ring.count]
        taking = [ring for ring in ready if ring.debt <= 0]
        if not any(ring.weight for ring in taking):
            taking += _paying(ready)
        self._aside = [ring for ring in ready if ring not in taking]
        for ring in taking:
            if ring not in self._active:
                self._join(ring)
        for ring in [ring for ring in self._active if ring not in taking]:
            self._leave(ring)

    def _join(self, ring: LevelRing[LaneT]) -> None:
        """Take a level back in; what it owed or was owed has faded at the rate of its weight.

        So a level that is empty for an instant loses nothing, and one that was idle for long brings
        no hoard. The others make room in proportion: lags of active levels always add up to 0.
        """
        faded = max(0, abs(ring.lag) - ring.weight * (self._picks - ring.left_at))
        lag = faded if ring.lag > 0 else -faded
        ring.lag = lag if self._active else 0
        self._spread(-ring.lag)
        self._set_active([*self._active, ring])

    def _leave(self, ring: LevelRing[LaneT]) -> None:
        ring.left_at = self._picks
        self._set_active([other for other in self._active if other is not ring])
        self._spread(ring.lag)

    def _set_active(self, rings: list[LevelRing[LaneT]]) -> None:
        self._active = [ring for ring in self._rings.values() if ring in rings]
        self._weigh()

    def _refine(self) -> None:
        """Count weights and lags in units so fine that parts of the high level are whole numbers.

        Only once there are such parts: then weights add up to the same, whoever has which part.
        """
        if self._scale == 1 and self._apps.has_parts:
            others = [ring for level, ring in self._rings.items() if level is not Level.HIGH]
            self._scale = fine_scale([ring.nominal for ring in others])
            for ring in self._rings.values():
                ring.lag *= self._scale

    def _weigh_again(self) -> None:
        if self._rings[Level.HIGH].part != self._high_part:
            self._weigh()

    def _weigh(self) -> None:
        """Set what each level weighs now, and how many slots those that take part may hold.

        A level that takes no part has no share, and so no cap until it joins.
        """
        high = self._rings[Level.HIGH]
        self._high_part = high.part
        for ring in self._rings.values():
            ring.weight = ring.nominal * self._scale
        if high in self._active:
            others = [ring for ring in self._active if ring is not high]
            hand_over(high, others, self._scale)
        self._total = sum(ring.weight for ring in self._active)
        for ring in self._active:
            ring.cap = 0 if ring.is_long else self._cap(ring)

    def _cap(self, ring: LevelRing[LaneT]) -> int:
        """Return the share of slots of a level that takes part, and what chance adds to it.

        Chance is that of deliveries that take equally long. One that takes part alone has no cap.
        """
        if not self._slots or len(self._active) == 1 or not self._total:
            return sys.maxsize
        part = ring.weight / self._total
        share = self._slots * part
        return math.ceil(share + _SPREAD * math.sqrt(share * (1 - part)) + 1)

    def _may_take(self, ring: LevelRing[LaneT]) -> bool:
        """Tell whether a level that is long, or at its cap, may take a slot."""
        return ring.held < self._cap(ring) and not self._is_kept_from(ring)

    def _is_kept_from(self, ring: LevelRing[LaneT]) -> bool:
        """True when only the tenth is free that is for levels that have nothing ready now.

        A level that holds less than its own part of all slots may take of it, too.
        """
        rings = self._rings.values()
        if not ring.is_long or all(other.count for other in rings if other.weight):
            return False
        if ring.held * sum(other.weight for other in rings) < self._slots * ring.weight:
            return False
        return self._slots - sum(other.held for other in rings) <= self._kept

    def _spread(self, amount: int) -> None:
        """Give `amount` of lag to the active levels in proportion to their weights."""
        if not self._active or not amount:
            return
        left = amount
        total = self._total
        for ring in self._active[1:]:
            part = abs(amount) * ring.weight // total if total else 0
            part = part if amount > 0 else -part
            ring.lag += part
            left -= part
        self._active[0].lag += left


def _paying(ready: list[LevelRing[LaneT]]) -> list[LevelRing[LaneT]]:
    """Choose who takes part when all levels owe, or count for nothing.

    One alone does, and owes on. Several pay each other off until one owes nothing.
    """
    owing = [ring for ring in ready if ring.debt > 0 and ring.weight]
    if len(owing) < 2:
        return owing or [ring for ring in ready if ring.debt > 0]
    first = min(owing, key=lambda ring: ring.debt / ring.weight)
    worth = first.debt / first.weight
    for ring in owing:
        ring.debt -= worth * ring.weight
    first.debt = 0.0
    return [ring for ring in owing if ring.debt <= 0]


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
