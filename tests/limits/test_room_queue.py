"""Who goes on next of the lanes that wait for room, and what becomes of leave that is not used."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pushlane.core.lane import Why
from pushlane.core.task import Level, Task
from pushlane.core.turns import Scheduler
from pushlane.dispatcher.gates.budget_gate import AppQuotas
from pushlane.dispatcher.gates.room_queue import RoomQueue
from pushlane.model.limits import Limit, Limits, Subject
from tests.limits.test_budget_gate import OneLane, weights

NOW_S = 1_000.0


class Waiting:
    """Lanes that wait for room, and send what they have leave for when they are `sent`."""

    def __init__(self, limits: Limits | None = None) -> None:
        turns: Scheduler[Any] = Scheduler()
        AppQuotas(turns).on_limits(limits or {})
        self.queue = RoomQueue(turns)
        self.tasks: dict[OneLane, Task] = {}

    def add(self, level: Level = Level.HIGH, quota: int = 1, app: str = "shop") -> OneLane:
        lane = OneLane(len(self.tasks), level)
        self.tasks[lane] = Task(
            id=lane.name, level=level, lane=lane.name, quota=quota, app=app, total=1
        )
        self.wait(lane)
        return lane

    def wait(self, lane: Any, now_s: float = NOW_S) -> None:
        lane.block(Why.BUDGET)
        self.queue.wait(lane, self.tasks[lane], now_s)

    def let_on(self, room: float, now_s: float = NOW_S) -> list[Any]:
        """Those that go on."""
        on = self.queue.let_on(room, weights(), now_s)
        for lane in on:
            lane.unblock(Why.BUDGET)
        return list(on)

    def sent(self, room: float, rounds: int) -> list[int]:
        """How many each has sent after so many rounds, in each of which there is this room."""
        counts: Counter[Any] = Counter()
        for _ in range(rounds):
            for lane in self.let_on(room):
                while not self.queue.keeps(lane):
                    self.queue.use(lane, NOW_S)
                    counts[lane] += 1
                    if self.queue.is_used_up:
                        break
                self.wait(lane)
        return [counts[lane] for lane in self.tasks]


def test_room_for_a_push_at_a_time_goes_by_the_weights_of_levels() -> None:
    waiting = Waiting()
    for level in Level:
        waiting.add(level)

    assert waiting.sent(room=1, rounds=100) == [60, 30, 10]


def test_more_room_at_a_time_goes_by_them_as_well() -> None:
    waiting = Waiting()
    for level in Level:
        waiting.add(level)

    assert waiting.sent(room=7.9, rounds=100) == [420, 210, 70]


def test_lanes_of_a_level_share_it_by_their_quotas_and_apps_by_theirs() -> None:
    waiting = Waiting({Subject("app", "bank"): Limit(quota=2)})
    for app, quota in (("shop", 3), ("shop", 1), ("bank", 1)):
        waiting.add(quota=quota, app=app)

    assert waiting.sent(room=1, rounds=120) == [30, 10, 80]


def test_a_newcomer_of_a_higher_level_is_the_next() -> None:
    waiting = Waiting()
    waiting.add(Level.LOW)
    waiting.sent(room=1, rounds=20)

    late = waiting.add(Level.HIGH)

    assert waiting.let_on(1) == [late]


def test_nobody_sends_without_leave_while_others_wait_or_have_some() -> None:
    waiting = Waiting()
    first, second = waiting.add(), waiting.add()
    other = OneLane(9)

    [on] = waiting.let_on(1)

    assert on is first
    assert not waiting.queue.keeps(on)
    assert waiting.queue.keeps(second)
    assert waiting.queue.keeps(other)  # type: ignore[arg-type]


def test_with_nobody_waiting_and_no_leave_left_who_comes_may_send() -> None:
    waiting = Waiting()
    lane: Any = waiting.add()
    waiting.let_on(1)
    waiting.queue.use(lane, NOW_S)

    assert waiting.queue.is_empty
    assert not waiting.queue.keeps(lane)


def test_room_that_others_have_leave_for_is_given_to_nobody_else() -> None:
    waiting = Waiting()
    first, second = waiting.add(), waiting.add()

    assert waiting.let_on(1) == [first]
    assert waiting.let_on(1) == []
    assert waiting.let_on(2) == [second]


def test_leave_that_is_not_used_for_a_tenth_of_a_second_goes_to_others() -> None:
    waiting = Waiting()
    first, second = waiting.add(), waiting.add()

    assert waiting.let_on(1) == [first]
    assert waiting.let_on(1, NOW_S + 0.05) == []
    assert waiting.let_on(1, NOW_S + 0.15) == [second]


def test_leave_of_a_lane_with_nothing_to_send_any_more_goes_to_others_at_once() -> None:
    waiting = Waiting()
    first, second = waiting.add(), waiting.add()
    assert waiting.let_on(1) == [first]

    first.block(Why.FORMAT)

    assert waiting.let_on(1) == [second]


def test_who_waits_for_more_than_room_goes_on_without_leave() -> None:
    waiting = Waiting()
    paused, other = waiting.add(), waiting.add()
    paused.block(Why.HELD)

    assert waiting.let_on(1) == [paused, other]
    assert waiting.queue.is_empty
    assert not waiting.queue.is_used_up


def test_a_task_that_was_promoted_waits_at_its_new_level() -> None:
    waiting = Waiting()
    low, medium = waiting.add(Level.LOW), waiting.add(Level.MEDIUM)
    low.level = Level.HIGH

    waiting.wait(low)

    assert waiting.sent(room=1, rounds=90) == [60, 30]
    assert medium.level is Level.MEDIUM


def test_all_go_on_once_there_is_no_limit() -> None:
    waiting = Waiting()
    lanes = {waiting.add(), waiting.add()}

    assert waiting.queue.let_all().keys() == lanes
    assert waiting.queue.is_empty
