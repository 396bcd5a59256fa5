"""Rings: what is ready takes turns. A level is a ring of apps, an app a ring of lanes.

Pure, O(1) a pick. What holds its slots for longer than others has its next turn only after so many
rounds. An app's turn is over when it has sent its quota. A lane's turn is counted by its app, so
one that is longer than its app's goes on in the app's next: over time apps share the level by their
quotas, and the lanes of an app its turns by theirs. A lane without an app takes turns as if it were
one. Which level is next is decided by `turns`.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

LaneT = TypeVar("LaneT", bound=Hashable)

WHOLE = 1_000
"""Parts of a level are counted in thousandths."""

_UNIT = 1_000_000  # by which a level's clock moves on for a push, when apps may have all of it

MOST_ROUNDS = 256  # from one turn of the slowest lane to its next


class RingEntry:
    """What takes turns in a ring.

    `queued` says whether it stands in a queue of its ring: what rests keeps its place there until
    it is passed over, so a lane that is empty for an instant does not lose its turn. `since` is
    when it began to wait, counted in turns of its ring. `rounds` is how many rounds of the ring
    there are from one of its turns to the next, and `due` the round of the next one.
    """

    __slots__ = ("due", "is_new", "queued", "quota", "ready", "rounds", "since")

    def __init__(self, quota: int) -> None:
        self.quota = quota
        self.ready = False
        self.queued = False
        self.is_new = True
        self.since = 0
        self.rounds = 1
        self.due = 0


EntryT = TypeVar("EntryT", bound=RingEntry)


class Ring(Generic[EntryT]):
    """Entries that take turns.

    `turn` is the one whose turn it is; it stands in no queue, and has `used` so much of its quota.
    `count` is how many are ready. Those never served yet go first, but of those served before one
    gets a turn between any two of them, so a flood of new ones starves nobody.

    A round is over when all that stood in `order` at its begin had their turn: `left` is how many
    of them have not yet. Entries that are not due in the next round wait in `calendar`, by the
    number of the round in which they are. `round` and `turns` count both since the start.
    """

    __slots__ = (
        "calendar",
        "count",
        "left",
        "newcomer_was_last",
        "newcomers",
        "order",
        "round",
        "turn",
        "turns",
        "used",
    )

    def __init__(self) -> None:
        self.count = 0
        self.turn: EntryT | None = None
        self.used = 0
        self.order: deque[EntryT] = deque()
        self.newcomers: deque[EntryT] = deque()
        self.calendar: dict[int, dict[EntryT, None]] = {}
        self.round = 0
        self.left = 0
        self.turns = 0
        self.newcomer_was_last = False

    def enter(self, entry: EntryT) -> None:
        entry.ready = True
        self.count += 1
        if entry.queued:
            return
        if entry.is_new:
            entry.queued = True
            entry.since = self.turns
            self.newcomers.append(entry)
        else:
            self.queue(entry)

    def leave(self, entry: EntryT) -> None:
        entry.ready = False
        self.count -= 1
        if self.turn is entry:
            self.turn = None

    def next_turn(self, entry: EntryT | None = None) -> EntryT:
        """Start the turn of the one that is next, or of an entry that stands in no queue.

        One is ready.
        """
        if entry is not None:
            self.newcomer_was_last = False
        elif self.newcomers and self._is_newcomers_turn():
            self.newcomer_was_last = True
            entry = self.newcomers.popleft()
        else:
            self.newcomer_was_last = False
            while not (self.order and self.order[0].ready):
                self._pass_over()
            if self.left == 0:
                self._end_round(self.round + 1)
            self.left -= 1
            entry = self.order.popleft()
        entry.due = self.round + entry.rounds
        self.turns += 1
        entry.queued = False
        self.turn = entry
        self.used = 0
        return entry

    def queue(self, entry: EntryT) -> None:
        """Put it behind the others of the next round, or until the round in which it is due."""
        entry.queued = True
        entry.since = self.turns
        if entry.due <= self.round + 1:
            self.order.append(entry)
        else:
            self.calendar.setdefault(entry.due, {})[entry] = None

    def set_rounds(self, entry: EntryT, rounds: int) -> None:
        """If it waits in the calendar, it moves to where it is due now."""
        waiting = self.calendar.get(entry.due, {})
        is_waiting = entry in waiting
        waiting.pop(entry, None)
        entry.due += rounds - entry.rounds
        entry.rounds = rounds
        if is_waiting:
            self.queue(entry)

    def _pass_over(self) -> None:
        """Let the one at the head rest and lose its place; when none is due, the round ends."""
        if self.left == 0 or not self.order:
            self._end_round(self.round + 1 if self.order else min(self.calendar))
        else:
            self.left -= 1
            self.order.popleft().queued = False

    def _end_round(self, following: int) -> None:
        self.round = following
        if self.calendar:
            self.order.extend(self.calendar.pop(following, ()))
        self.left = len(self.order)

    def _is_newcomers_turn(self) -> bool:
        return self._has_newcomer() and not self._old_one_is_due()

    def _old_one_is_due(self) -> bool:
        """Whether, after a newcomer's turn, another waits for longer than the next newcomer."""
        return (
            self.newcomer_was_last
            and self._has_ready()
            and self.order[0].since < self.newcomers[0].since
        )

    def _has_ready(self) -> bool:
        """True when a ready one is due without a new round."""
        while self.order and not self.order[0].ready:
            self._pass_over()
        return bool(self.order)

    def _has_newcomer(self) -> bool:
        while self.newcomers and not self.newcomers[0].ready:
            self.newcomers.popleft().queued = False
        return bool(self.newcomers)


class LaneEntry(RingEntry, Generic[LaneT]):
    """A lane. It takes its turns in the ring of its app, or of its level if it has none."""

    __slots__ = ("app", "lane", "level", "ring")

    def __init__(
        self, lane: LaneT, level: LevelRing[LaneT], app: AppEntry[LaneT] | None, quota: int
    ) -> None:
        super().__init__(quota)
        self.lane = lane
        self.level = level
        self.app = app
        self.ring: Ring[LaneEntry[LaneT]] | LevelRing[LaneT] = level if app is None else app.lanes


class AppEntry(RingEntry, Generic[LaneT]):
    """An app in one level, with the lanes that it has there.

    `part` is how many thousandths of the level it may have. With less than all it is *paced*: for
    each push its clock, `free_at`, moves on by `cost`, and it has no turn before the level's own
    clock is there. Until then it is `parked`.
    """

    __slots__ = ("cost", "free_at", "known", "lanes", "name", "parked", "part")

    def __init__(self, name: str, quota: int) -> None:
        super().__init__(quota)
        self.name = name
        self.lanes: Ring[LaneEntry[LaneT]] = Ring()
        self.known = 0
        self.part = WHOLE
        self.cost = 0
        self.free_at = 0
        self.parked = False


class LevelRing(Ring["LaneEntry[LaneT] | AppEntry[LaneT]"], Generic[LaneT]):
    """A ring of apps and of lanes without one, and what the level is owed.

    `serving` is the lane that the next push comes from, if that is known. `parts` adds up what
    those that are ready may have, at most `WHOLE` each. `clock` counts the level's pushes for
    those that are paced, by `step`, which is 0 while nobody is. `waiting` is how many of the parked
    ones are ready.

    `lag` is in units of 1/(sum of active weights) picks: positive when the level is owed. `weight`
    is what counts now, `nominal` what was set. `left_at` is the pick at which it last had nothing
    ready. `held` counts the slots that the level has: below `cap` it may take another, and from
    there on the scheduler looks closer. `debt` is in picks: while there is some, the level stands
    aside. `is_long`: its deliveries take so long that it leaves some slots to others.
    """

    __slots__ = (
        "apps",
        "cap",
        "clock",
        "debt",
        "held",
        "is_long",
        "lag",
        "left_at",
        "nominal",
        "paced",
        "parked",
        "parts",
        "serving",
        "step",
        "waiting",
        "weight",
    )

    def __init__(self, weight: int) -> None:
        super().__init__()
        self.nominal = weight
        self.weight = weight
        self.lag = 0
        self.left_at = 0
        self.debt = 0.0
        self.held = 0
        self.cap = sys.maxsize
        self.is_long = False
        self.apps: dict[str, AppEntry[LaneT]] = {}
        self.serving: LaneEntry[LaneT] | None = None
        self.parts = 0
        self.paced = 0
        self.clock = 0
        self.step = 0
        self.waiting = 0
        self.parked: list[tuple[int, int, AppEntry[LaneT]]] = []

    @property
    def part(self) -> int:
        """Return how much of the level those that are ready may have together."""
        return min(self.parts, WHOLE)

    def know(
        self, lane: LaneT, quota: int, app: str, app_quota: int, part: int
    ) -> LaneEntry[LaneT]:
        """Know a lane; with the first of an app, the app. An empty name is no app."""
        if not app:
            return LaneEntry(lane, self, None, quota)
        entry = self.apps.get(app)
        if entry is None:
            entry = self.apps[app] = AppEntry(app, app_quota)
            self.set_part(app, part)
        entry.known += 1
        return LaneEntry(lane, self, entry, quota)

    def forget(self, entry: LaneEntry[LaneT]) -> None:
        """Forget a lane that rests; with the last of an app, the app."""
        app = entry.app
        if app is not None:
            app.known -= 1
            if not app.known:
                self.set_part(app.name, WHOLE)
                del self.apps[app.name]

    def set_app_quota(self, name: str, quota: int) -> None:
        """Takes effect at once: a turn that has used it up ends with its next push."""
        if app := self.apps.get(name):
            app.quota = quota
            if self.turn is app:
                self.used = min(self.used, quota - 1)

    def set_part(self, name: str, part: int) -> None:
        """Give an app of this level so many thousandths of it; it is not parked any more."""
        app = self.apps.get(name)
        if app is None or app.part == part:
            return
        self.paced += (part < WHOLE) - (app.part < WHOLE)
        if app.ready:
            self.parts += part - app.part
        app.part = part
        app.cost = _UNIT * WHOLE // part if part < WHOLE else 0
        if app.parked:
            self._unpark(app)
        app.free_at = 0
        self._set_step()

    def wake(self, entry: LaneEntry[LaneT]) -> None:
        """Note that a lane has something to send."""
        app = entry.app
        if app is None:
            self.enter(entry)
            return
        app.lanes.enter(entry)
        if app.lanes.count == 1:
            self.enter(app)

    def rest(self, entry: LaneEntry[LaneT]) -> None:
        """Note that a lane cannot move; its turn, if any, is over."""
        if self.serving is entry:
            self.serving = None
        app = entry.app
        if app is None:
            self.leave(entry)
            return
        app.lanes.leave(entry)
        if app.lanes.count == 0:
            self.leave(app)

    def enter(self, entry: LaneEntry[LaneT] | AppEntry[LaneT]) -> None:
        super().enter(entry)
        self._count(entry, 1)

    def leave(self, entry: LaneEntry[LaneT] | AppEntry[LaneT]) -> None:
        super().leave(entry)
        self._count(entry, -1)

    def serve(self) -> LaneEntry[LaneT]:
        """Find the lane that the next push comes from; one is ready."""
        top = self.turn or (self._next_paced() if self.step else self.next_turn())
        if isinstance(top, AppEntry):
            lanes = top.lanes
            top = lanes.turn or lanes.next_turn()
        self.serving = top
        return top

    def charge(self) -> None:
        """Count a push of the lane that is served."""
        entry = self.serving
        assert entry is not None
        entry.is_new = False
        self.held += 1
        ring = entry.ring
        ring.used += 1
        if ring.used >= entry.quota:
            self.serving = ring.turn = None
            ring.queue(entry)
        app = entry.app
        if app is not None:
            app.is_new = False
            if self.count > 1:
                self._charge_app(app, entry.rounds)
        if self.step:
            self.clock += self.step * entry.rounds

    def _charge_app(self, app: AppEntry[LaneT], cost: int) -> None:
        """Count a push of an app that is not alone; a slow lane's costs as many as its rounds.

        So an app that sends of slow lanes alone has turns as seldom as such a lane.
        """
        self.used += cost
        app.free_at += cost * app.cost
        if self.used >= app.quota:
            if self.used > app.quota:
                app.due += round(self.used / app.quota) - 1
            self.serving = self.turn = None
            self.queue(app)

    def _count(self, entry: LaneEntry[LaneT] | AppEntry[LaneT], by: int) -> None:
        if isinstance(entry, AppEntry):
            self.parts += by * entry.part
            self.waiting += by * entry.parked
        else:
            self.parts += by * WHOLE
        if self.paced:
            self._set_step()

    def _set_step(self) -> None:
        """Where all that are ready may not have the whole together, their clocks have to keep up.

        It is rounded up, so that clocks of apps do not run away from that of the level.
        """
        self.step = -(-_UNIT * WHOLE // max(1, self.part)) if self.paced else 0

    def _next_paced(self) -> LaneEntry[LaneT] | AppEntry[LaneT]:
        """Start the next turn: of a parked app whose time has come, or of who is next in the ring.

        One in the ring whose time has not come is parked instead. A parked one has waited for its
        turn in the ring already, so it goes before the others; when all are parked, the earliest.
        One that had its turn late may catch up, by the time of one turn at most.
        """
        while True:
            if self.parked and self._is_parked_next():
                app = heappop(self.parked)[-1]
                app.parked = app.queued = False
                if app.ready:
                    self.waiting -= 1
                    return self.next_turn(app)
                continue
            top = self.next_turn()
            if not isinstance(top, AppEntry) or not top.cost:
                return top
            if top.free_at <= self.clock:
                top.free_at = max(top.free_at, self.clock - top.cost * top.quota)
                return top
            self._park(top)

    def _is_parked_next(self) -> bool:
        if self.waiting == self.count:
            return True
        is_time = self.parked[0][0] <= self.clock
        return is_time and (self.newcomer_was_last or not self._has_newcomer())

    def _park(self, app: AppEntry[LaneT]) -> None:
        self.turn = None
        app.queued = app.parked = True
        self.waiting += 1
        heappush(self.parked, (app.free_at, self.turns, app))

    def _unpark(self, app: AppEntry[LaneT]) -> None:
        """Put it into the ring, as the next."""
        self.parked = [one for one in self.parked if one[-1] is not app]
        heapify(self.parked)
        app.parked = False
        self.waiting -= app.ready
        self.order.appendleft(app)
        self.left += 1
