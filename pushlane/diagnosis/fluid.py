"""When each task of a sink will be through, by a fluid model: one run for all of them. Pure.

Levels share the sink by their weights, apps and lanes of the pool share a level, and the lanes of
an app share what that gets, each up to its limit: at every moment as `entitled_rates` shares it.
Nothing changes between two events: a task is through, or one starts.

Virtual time goes by where something is shared: of those that share by weight one comes first that
has least before it for its weight, whatever amount they share. So an app has a clock that goes as
fast as a lane of weight 1 flows, keeps its lanes in the order of their ends by that clock, and
looks at none that does not end; so does a level with its apps. What a limit holds back goes by real
time. An app none of whose lanes has a limit takes the same of its level whichever of them are
through: it is looked at only when all are, and tells then, from what its level's clock showed when,
the end of each.
This is the virtual time of fair queueing (Demers, Keshav and Shenker, Analysis and Simulation of a
Fair Queueing Algorithm, 1989), one clock within another (Bennett and Zhang, Hierarchical Packet
Fair Queueing Algorithms, 1996).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from pushlane.core.task import Level, Task
from pushlane.model.load import (
    RatedAt,
    SinkLoad,
    Standing,
    divided,
    filled,
    part_of_high,
    whole_of_high,
)

_CLOSE = 1e-9  # what differs by less of itself is the same
_NOTHING = 1e-9
_APP = "app "
_MOST_DIVIDED = 256  # apps whose rates are divided among their levels, at each event


class Expected(NamedTuple):
    """Seconds from now until a task's first push goes, and until its last has."""

    starts_in_s: float
    ends_in_s: float


def forecast(load: SinkLoad, task_id: str, per_s: float | None) -> Expected | None:
    """Return when a task of the load will be through, if the sink takes so many pushes a second.

    None when it cannot be told: nothing is known of the sink, or nothing of the task ever goes.
    """
    return forecasts(load, (task_id,), per_s).get(task_id)


def forecasts(
    load: SinkLoad, task_ids: Collection[str], per_s: float | None
) -> dict[str, Expected]:
    """Return the same by id of those of which it can be told."""
    asked = {one.task.id for one in load.standings if one.backlog < math.inf}.intersection(task_ids)
    return {} if per_s is None or not asked else _Run(load, asked, per_s).run()


class Flow(NamedTuple):
    """The ends of tasks, by id, and how many pushes a second go now, by level and app."""

    ends: dict[str, Expected]
    rates: dict[tuple[Level, str], float]


def flow(load: SinkLoad, task_ids: Collection[str], per_s: float) -> Flow:
    """Return the ends of these tasks as `forecasts` does, and what each app gets now."""
    run = _Run(load, task_ids, per_s)
    return Flow(run.run(), run.first_rates)


_Entry = tuple[float, int, Any]
_Heap = list[_Entry]


class _Member(Protocol):
    """Shares with others. `entry` is its place among the next, None if it has none."""

    quota: int
    most: float
    is_held: bool
    entry: _Entry | None


MemberT = TypeVar("MemberT", bound=_Member)


class _Sharing(Generic[MemberT]):
    """Members share `per_s` by their quotas, each up to its most; at that it is held.

    At `at_s` the clock is `clock`, and goes by `speed` a second: so much flows for a quota of 1.
    """

    def __init__(self) -> None:
        self.per_s = self.clock = self.speed = self.at_s = 0.0
        self.members = self.held = 0
        self.quotas = 0  # of those that are not held
        self._held_per_s = 0.0
        self._unlimited, self._most_of_all = 0, 0.0
        self._by_clock: _Heap = []
        self._by_time: _Heap = []
        self._to_hold: _Heap = []  # by the speed from which on each is held
        self._to_free: _Heap = []
        self._ticket = count()

    @property
    def most_of_all(self) -> float:
        """The most that its members can take."""
        return math.inf if self._unlimited else self._most_of_all

    def move_to(self, now_s: float) -> None:
        """Let its clock go on until then."""
        self.clock += self.speed * (now_s - self.at_s)
        self.at_s = now_s

    def add(self, one: MemberT) -> None:
        """Let a member share; `share` is to follow."""
        self.members += 1
        if one.most < math.inf:
            self._count_most(one, 1)
            self._free(one)
            return
        one.is_held = False
        self._unlimited += 1
        self.quotas += one.quota
        self._queue(one)

    def remove(self, one: MemberT) -> None:
        """Let a member share no more; `share` is to follow."""
        self._settle(one)
        self.members -= 1
        self._count_most(one, -1)
        self._take_out(one)

    def _count_most(self, one: MemberT, by: int) -> None:
        if one.most == math.inf:
            self._unlimited += by
        else:
            self._most_of_all += by * one.most

    @abstractmethod
    def _settle(self, one: MemberT) -> None:
        """Bring a member up to now, before it flows otherwise."""

    @abstractmethod
    def _queue(self, one: MemberT) -> None:
        """Put a member among the next, as it flows now."""

    def _take_out(self, one: MemberT) -> None:
        one.entry = None
        if one.is_held:
            self.held -= 1
            self._held_per_s = self._held_per_s - one.most if self.held else 0.0
        else:
            self.quotas -= one.quota

    def _free(self, one: MemberT) -> None:
        """Let a member flow by its quota."""
        one.is_held = False
        self.quotas += one.quota
        self._queue(one)
        if one.most < math.inf:
            heappush(self._to_hold, (one.most / one.quota, next(self._ticket), one))

    def _hold(self, one: MemberT) -> None:
        """Let a member flow at its most."""
        self._settle(one)
        self._take_out(one)
        one.is_held = True
        self.held += 1
        self._held_per_s += one.most
        self._queue(one)
        heappush(self._to_free, (-one.most / one.quota, next(self._ticket), one))

    def share(self) -> None:
        """Find who is held, and how fast the others flow. Its clock has to be at now."""
        while True:
            left = self.per_s - self._held_per_s
            is_short = left < -_CLOSE * self.per_s
            self.speed = max(0.0, left / self.quotas) if self.quotas else 0.0
            slow = _first(self._to_free, is_held=True)
            if slow is not None and (
                self.speed < (1 - _CLOSE) * slow.most / slow.quota if self.quotas else is_short
            ):
                self._settle(slow)
                self._take_out(slow)
                self._free(slow)
                continue
            fast = _first(self._to_hold, is_held=False)
            if fast is None or self.speed <= (1 + _CLOSE) * fast.most / fast.quota:
                return
            self._hold(fast)

    def speed_of_change(self) -> float:
        """Return the speed above which one more is held."""
        fast = _first(self._to_hold, is_held=False)
        return math.inf if fast is None else fast.most / fast.quota

    def next_s(self) -> float:
        """Return when something happens to the first of its members."""
        by_clock, by_time = _valid(self._by_clock), _valid(self._by_time)
        next_s = by_time[0] if by_time else math.inf
        if by_clock and self.speed > 0:
            next_s = min(next_s, self.at_s + max(0.0, by_clock[0] - self.clock) / self.speed)
        return next_s

    def next_by_clock(self) -> float:
        """Return what its clock shows then, if no member is held."""
        by_clock = _valid(self._by_clock)
        return by_clock[0] if by_clock else math.inf

    def first(self) -> MemberT:
        """Return the member to which something happens now."""
        by_clock, by_time = _valid(self._by_clock), _valid(self._by_time)
        entry = by_time if by_time and by_time[0] <= self.at_s else by_clock or by_time
        assert entry is not None
        member: MemberT = entry[2]
        return member


def _valid(heap: _Heap) -> _Entry | None:
    """Return the first entry that is still its member's."""
    while heap and heap[0][2].entry is not heap[0]:
        heappop(heap)
    return heap[0] if heap else None


def _first(heap: _Heap, *, is_held: bool) -> Any:
    """Return the first member that is in this state still, at this speed; None if there is none."""
    while heap:
        speed, _, one = heap[0]
        if one.entry is not None and one.is_held is is_held and abs(speed) == one.most / one.quota:
            return one
        heappop(heap)
    return None


class _Lane:
    """A task that shares: of it `left` pushes are left at `seen`.

    That is a time of its app's clock, or in seconds while it is held.
    """

    __slots__ = ("app", "began_s", "entry", "is_held", "left", "most", "quota", "seen", "task")

    def __init__(self, task: Task, quota: int, most: float, left: float) -> None:
        self.task = task
        self.app: _App | None = None
        self.quota = quota
        self.most = most
        self.left = left
        self.is_held = False
        self.seen = 0.0
        self.began_s: float | None = None
        self.entry: _Entry | None = None


class _App(_Sharing[_Lane]):
    """The lanes of an app at a level, or one of the pool; `most` is what it can take now.

    While it `follows` its level, none of its lanes being held, its own clock follows the level's,
    which it has last `seen`: so nothing is to be done for it while only that one's speed changes.
    """

    def __init__(self, name: str, quota: int, own_most: float) -> None:
        super().__init__()
        self.name = name
        self.quota = quota
        self.own_most = self.part_most = own_most
        self.most = own_most
        self.is_held = self.follows = False
        self.seen = 0.0
        self.entry: _Entry | None = None
        self._fresh: dict[_Lane, None] = {}  # nothing of which has gone
        self._left: float | None = 0.0  # of all its lanes, while none of them has a limit

    @property
    def is_plain(self) -> bool:
        """True while none of its lanes has a limit: then it takes what it gets until all end."""
        return self._unlimited == self.members

    @property
    def left(self) -> float:
        """The pushes that are left of a plain app."""
        if self._left is None:
            lanes = (one[2] for one in self._by_clock if one[2].entry is one)
            self._left = sum(one.left - one.quota * (self.clock - one.seen) for one in lanes)
        return self._left

    @property
    def own_can_take(self) -> float:
        """The most that it can take with the lanes that it has, whatever its part of high."""
        return min(self.own_most, self.most_of_all)

    @property
    def can_take(self) -> float:
        """The most that it can take with the lanes that it has."""
        return min(self.own_can_take, self.part_most)

    def add(self, one: _Lane) -> None:
        if one.began_s is None:
            self._fresh[one] = None
        super().add(one)
        if self._left is not None:
            self._left = self._left + one.left if self.is_plain else None

    def remove(self, one: _Lane) -> None:
        self._fresh.pop(one, None)
        super().remove(one)
        if self._left is not None:
            self._left -= one.left

    def send(self, pushes: float) -> Iterator[tuple[_Lane, float]]:
        """Let so many pushes of a plain app go; yield each lane that is through, but the last.

        With each comes how many of them had gone by then.
        """
        gone, self._left = 0.0, self.left - pushes
        while self.members > 1:
            first = _valid(self._by_clock)
            assert first is not None
            by_then = gone + max(0.0, first[0] - self.clock) * self.quotas
            if by_then > pushes:
                break
            gone, self.clock, lane = by_then, max(self.clock, first[0]), first[2]
            self._fresh.pop(lane, None)
            self.members -= 1
            self._count_most(lane, -1)
            self._take_out(lane)
            yield lane, gone
        self.clock += (pushes - gone) / self.quotas if self.quotas else 0.0

    def give(self, per_s: float) -> None:
        """Share so much from now on."""
        self.per_s = per_s
        self.share()

    @property
    def is_fresh(self) -> bool:
        """True while nothing has gone of a lane of it."""
        return bool(self._fresh)

    def begin(self, now_s: float, per_s: float) -> None:
        """Note that its lanes flow from now on, if so much is anything."""
        if per_s > _NOTHING:
            for lane in self._fresh:
                lane.began_s = now_s
            self._fresh.clear()

    def _settle(self, one: _Lane) -> None:
        if one.is_held:
            one.left -= one.most * (self.at_s - one.seen)
        else:
            one.left -= one.quota * (self.clock - one.seen)

    def _queue(self, one: _Lane) -> None:
        if one.is_held:
            one.seen = self.at_s
            end = self.at_s + one.left / one.most if one.most else math.inf
        else:
            one.seen = self.clock
            end = self.clock + one.left / one.quota
        one.entry = (end, next(self._ticket), one)
        heappush(self._by_time if one.is_held else self._by_clock, one.entry)


class _AtLevel(_Sharing[_App]):
    """A level: what it has is shared by its apps and by lanes of the pool.

    `tell` is told of a lane that is through, and when.
    """

    def __init__(self, weight: int, tell: Callable[[_Lane, float], None]) -> None:
        super().__init__()
        self.weight = weight
        self._tell = tell
        self._shown: list[float] = [0.0]  # what its clock showed, and when
        self._shown_at_s: list[float] = [0.0]
        self.apps: dict[str, _App] = {}
        self.quotas_of_all = 0
        self._mixed: dict[_App, None] = {}  # not held, but a lane of theirs is
        self._faster: _Heap = []  # apps that follow, by the speed above which a lane is held
        self._beginning: dict[_App, None] = {}  # may have lanes that flow once it is shared

    def move_to(self, now_s: float) -> None:
        super().move_to(now_s)
        if now_s > self._shown_at_s[-1]:
            self._shown.append(self.clock)
            self._shown_at_s.append(now_s)

    def _time_of(self, clock: float) -> float:
        """Return when its clock came to show this."""
        after = bisect_left(self._shown, clock)
        if after == len(self._shown):
            return self._shown_at_s[-1]
        if after == 0:
            return self._shown_at_s[0]
        from_, to = self._shown[after - 1], self._shown[after]
        from_s, to_s = self._shown_at_s[after - 1], self._shown_at_s[after]
        return from_s + (to_s - from_s) * (clock - from_) / (to - from_)

    def enter(self, app: _App) -> None:
        """Let an app share; `share` is to follow."""
        app.most = app.can_take
        self.add(app)

    def leave(self, app: _App) -> None:
        """Let an app share no more; `share` is to follow."""
        self.remove(app)
        self._mixed.pop(app, None)
        self._beginning.pop(app, None)

    def look_at(self, app: _App) -> None:
        """Bring an app up to now, before its lanes are changed."""
        self._settle(app)

    def go_on(self, app: _App) -> bool:
        """Let an app go on whose lanes were changed; tell whether `share` is to follow."""
        if app.most == app.can_take:
            self._queue(app)
            return False
        self.leave(app)
        self.enter(app)
        return True

    def share(self) -> None:
        """Do as for all that share, then give apps their parts that do not just follow."""
        stood = self.speed <= 0
        super().share()
        for app in [*self._mixed]:
            self._settle(app)
            self._queue(app)
        while self._faster and self._faster[0][0] * (1 + 2 * _CLOSE) < self.speed:
            speed, _, app = heappop(self._faster)
            if app.entry is not None and app.follows and speed == self._limit_of(app):
                self._settle(app)
                self._queue(app)
        for app in self.apps.values() if stood and self.speed > 0 else [*self._beginning]:
            app.begin(self.at_s, self._given_to(app))
        self._beginning.clear()

    def _given_to(self, app: _App) -> float:
        return app.most if app.is_held else app.quota * self.speed

    def _settle(self, one: _App) -> None:
        if one.is_plain and one.quotas:
            self._send(one)
        elif one.follows:
            if one.quotas:
                one.clock += one.quota * (self.clock - one.seen) / one.quotas
            one.seen, one.at_s = self.clock, self.at_s
        else:
            one.move_to(self.at_s)

    def _send(self, one: _App) -> None:
        """Let go what a plain app has got since it was seen, and tell what of it is through."""
        if one.follows:
            for lane, gone in one.send(one.quota * (self.clock - one.seen)):
                self._tell(lane, self._time_of(one.seen + gone / one.quota))
        elif one.per_s:
            for lane, gone in one.send(one.per_s * (self.at_s - one.at_s)):
                self._tell(lane, one.at_s + gone / one.per_s)
        one.seen, one.at_s = self.clock, self.at_s

    def _queue(self, one: _App) -> None:
        """Give an app its part, and put it among the next."""
        one.give(self._given_to(one))
        if one.is_fresh:
            self._beginning[one] = None
        one.follows, one.seen = not (one.is_held or one.held), self.clock
        self._mixed.pop(one, None)
        if one.follows:
            ahead = (one.next_by_clock() - one.clock) * one.quotas
            ahead = one.left if one.is_plain else ahead
            one.entry = (self.clock + ahead / one.quota, next(self._ticket), one)
            heappush(self._by_clock, one.entry)
            if (limit := self._limit_of(one)) < math.inf:
                heappush(self._faster, (limit, next(self._ticket), one))
            return
        if not one.is_held:
            self._mixed[one] = None
        next_s = one.next_s()
        if one.is_plain:
            next_s = self.at_s + max(0.0, one.left) / one.per_s if one.per_s else math.inf
        one.entry = (next_s, next(self._ticket), one)
        heappush(self._by_time, one.entry)

    def _limit_of(self, app: _App) -> float:
        """Return the speed of this level above which a lane of an app is held that follows."""
        return app.speed_of_change() * app.quotas / app.quota


class _Run:
    """One run: who shares, and what happens next, at `now_s` seconds from now."""

    def __init__(self, load: SinkLoad, asked: Collection[str], per_s: float) -> None:
        self._load = load
        self._per_s = per_s
        self._asked = set(asked)
        self._found: dict[str, Expected] = {}
        self._now_s = 0.0
        self._levels: dict[Level, _AtLevel] = {}
        self._queues: dict[str, list[tuple[int, str, Standing]]] = {}  # of lanes of the pool
        self._heads: dict[str, _Lane] = {}
        self._waiting: dict[str, _Lane] = {}  # lanes that an older task of the pool holds up
        self._has_parts = any(one.high_part is not None for one in load.limits.values())
        self._of_high = math.inf
        self._rated: dict[str, dict[Level, _App]] = {}  # apps with a rate, where they share
        self._apart: set[str] = set()  # those that share at several levels
        self._together: set[str] = set()  # those that share at one again
        self._changed: set[Level] = set()
        self._begun: dict[_App, _AtLevel] = {}  # apart from their levels, as lanes are added
        self.first_rates: dict[tuple[Level, str], float] = {}

    def run(self) -> dict[str, Expected]:
        coming = self._coming()
        is_first = True
        while self._asked or is_first:
            event_s, level = min(
                ((one.next_s(), level) for level, one in self._levels.items()),
                default=(math.inf, Level.HIGH),
            )
            start_s = coming[-1][0] if coming else math.inf
            self._now_s = min(event_s, start_s)
            if self._now_s == math.inf:
                break
            if event_s <= start_s:
                self._through(level)
            while coming and coming[-1][0] <= self._now_s:
                self._start(coming.pop()[2])
            if self._begun:
                self._enter()
            if self._changed:
                self._share()
            if is_first and not self._now_s:
                self.first_rates = self._rates()
            is_first = False
        return self._found

    def _rates(self) -> dict[tuple[Level, str], float]:
        """Return how many pushes a second go now, by level and app."""
        rates: dict[tuple[Level, str], float] = {}
        for at, level in self._levels.items():
            for app in level.apps.values():
                head = self._heads.get(app.name)
                name = app.name.removeprefix(_APP) if head is None else head.task.app
                per_s = app.quota * level.speed if app.follows else app.per_s
                rates[at, name] = rates.get((at, name), 0.0) + per_s
        return rates

    def _coming(self) -> list[tuple[float, int, Standing]]:
        """Return the tasks that have something to send, the last to start first."""
        now_ms = self._load.now_ms
        starts = [
            (max(0.0, (one.starts_at_ms(now_ms) - now_ms) / 1000), place, one)
            for place, one in enumerate(self._load.standings)
            if one.backlog > _NOTHING
        ]
        starts.sort(reverse=True)
        return starts

    def _start(self, one: Standing) -> None:
        """Let a task share from now on; on a lane of the pool after the older ones there."""
        task, load = one.task, self._load
        if task.pooled:
            queue = self._queues.setdefault(task.lane, [])
            heappush(queue, (task.created_at_ms, task.id, one))
            self._put_first(task.lane)
            return
        lane = _Lane(task, task.quota, load.most_per_s("task", task.id), one.backlog)
        self._add(task, _APP + task.app, lane)

    def _put_first(self, name: str) -> None:
        """Have the oldest task of a lane of the pool share, and no other of it."""
        queue, head = self._queues[name], self._heads.get(name)
        if head is not None:
            if queue[0][1] == head.task.id:
                return
            self._take(head)
            self._waiting[head.task.id] = head
        one, load = queue[0][2], self._load
        task = one.task
        lane = self._waiting.pop(task.id, None)
        if lane is None:
            most = min(load.most_per_s("app", task.app), load.most_per_s("task", task.id))
            lane = _Lane(task, 1, most, one.backlog)
        self._heads[name] = lane
        self._add(task, name, lane)

    def _add(self, task: Task, name: str, lane: _Lane) -> None:
        """Let a lane share at the level of its task, in the app of this name there."""
        level = self._levels.get(task.level)
        if level is None:
            weight = self._load.weights.by_level()[task.level]
            level = self._levels[task.level] = _AtLevel(weight, self._tell)
        if (app := level.apps.get(name)) is None:
            app = level.apps[name] = self._new_app(task, name)
            level.quotas_of_all += app.quota
            self._begun[app] = level
        elif app not in self._begun:
            level.move_to(self._now_s)
            level.leave(app)
            self._begun[app] = level
        lane.app = app
        app.add(lane)

    def _enter(self) -> None:
        """Let apps share that have lanes that were not there before."""
        for app, level in self._begun.items():
            if app.members:
                level.move_to(self._now_s)
                level.enter(app)
        self._changed.update(at for at, one in self._levels.items() if one in self._begun.values())
        self._begun.clear()

    def _new_app(self, task: Task, name: str) -> _App:
        load, quota, most = self._load, 1, math.inf
        if not task.pooled:
            quota = load.limit("app", task.app, "quota") or 1
            most = load.most_per_s("app", task.app)
        app = _App(name, quota, most)
        app.at_s = self._now_s
        if not task.pooled and most < math.inf:
            at = self._rated.setdefault(name, {})
            at[task.level] = app
            if len(at) > 1:
                self._apart.add(name)
                self._together.discard(name)
        if task.level is Level.HIGH:
            app.part_most = self._part_of(app)
        return app

    def _take(self, lane: _Lane) -> None:
        """Let a lane share no more; with the last one its app, and with that its level."""
        app, at = lane.app, lane.task.level
        assert app is not None
        level = self._levels[at]
        if app in self._begun:  # it shares nothing at this moment
            app.remove(lane)
            return
        level.move_to(self._now_s)
        level.look_at(app)
        app.remove(lane)
        if app.members:
            if level.go_on(app):
                self._changed.add(at)
            return
        level.leave(app)
        del level.apps[app.name]
        level.quotas_of_all -= app.quota
        if app.name in self._apart:
            del self._rated[app.name][at]
            if len(self._rated[app.name]) == 1:
                self._apart.remove(app.name)
                self._together.add(app.name)
        else:
            self._rated.pop(app.name, None)
            self._together.discard(app.name)
        self._changed.add(at)
        if not level.apps:
            del self._levels[at]

    def _through(self, at: Level) -> None:
        """The first task of a level is through."""
        level = self._levels[at]
        level.move_to(self._now_s)
        app = level.first()
        level.look_at(app)
        lane = app.first()
        task = lane.task
        self._take(lane)
        self._tell(lane, self._now_s)
        if task.pooled:
            del self._heads[task.lane]
            heappop(self._queues[task.lane])
            if self._queues[task.lane]:
                self._put_first(task.lane)

    def _tell(self, lane: _Lane, end_s: float) -> None:
        """Note that a lane is through, if its end is asked for."""
        task_id = lane.task.id
        if task_id in self._asked:
            self._asked.remove(task_id)
            began_s = end_s if lane.began_s is None else lane.began_s
            self._found[task_id] = Expected(began_s, end_s)

    def _share(self) -> None:
        """Share the sink anew among the levels, as something of them has changed."""
        self._divide_rates()
        changed, self._changed = self._changed, set()
        self._bound_high()
        levels = {level: self._levels[level] for level in Level if level in self._levels}
        wants = [(one.weight, one.most_of_all) for one in levels.values()]
        for at, given in zip(levels, filled(wants, self._per_s), strict=True):
            level, per_s = levels[at], given if given > _NOTHING else 0.0
            if at in changed or per_s != level.per_s or at is Level.HIGH:
                level.move_to(self._now_s)
                level.per_s = per_s
                level.share()

    def _divide_rates(self) -> None:
        """Give apps with a rate so much of it at each of their levels as the weights say."""
        if not (self._apart or self._together) or len(self._apart) > _MOST_DIVIDED:
            return
        weights = sum(one.weight for one in self._levels.values()) or 1
        for name in sorted(self._apart | self._together):
            at, rate = self._rated[name], self._load.most_per_s("app", name.removeprefix(_APP))
            rated = [self._rated_at(app, level, weights) for level, app in at.items()]
            given = divided(rate, self._per_s, rated) if len(at) > 1 else [rate]
            for (level, app), most in zip(at.items(), given, strict=True):
                self._set_most(app, level, most)
        self._together.clear()

    def _rated_at(self, app: _App, at: Level, weights: float) -> RatedAt:
        """Return how an app with a rate stands at a level, of all these weights."""
        level = self._levels[at]
        part = level.weight / weights * app.quota / level.quotas_of_all
        return RatedAt(level.weight, part, app.most_of_all)

    def _set_most(self, app: _App, at: Level, most: float) -> None:
        """Bound what an app has at a level by its rate."""
        level = self._levels[at]
        level.move_to(self._now_s)
        level.look_at(app)
        app.own_most = most
        if level.go_on(app):
            self._changed.add(at)

    def _bound_high(self) -> None:
        """Let apps have no more of high than their part, as far as there is anybody else."""
        high = self._levels.get(Level.HIGH)
        if not self._has_parts or high is None:
            return
        others = [
            (one.weight, one.most_of_all)
            for at, one in self._levels.items()
            if at is not Level.HIGH
        ]
        apps = [(self._own_part(app), app.own_can_take) for app in high.apps.values()]
        of_high = whole_of_high(high.weight, others, apps, self._per_s)
        if of_high == self._of_high:
            return
        self._of_high = of_high
        high.move_to(self._now_s)
        for app in high.apps.values():
            high.look_at(app)
            app.part_most = self._part_of(app)
            high.go_on(app)

    def _own_part(self, app: _App) -> float:
        return part_of_high(self._load, app.name.removeprefix(_APP))

    def _part_of(self, app: _App) -> float:
        """Return the most that an app may have of the high level."""
        part = self._own_part(app)
        return math.inf if part >= 1 or self._of_high == math.inf else part * self._of_high
