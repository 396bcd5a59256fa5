"""The last hour: of which tasks it is kept, and for how long."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pushlane.core.names import own_lane
from pushlane.core.task import Level, Progress, State, Task
from pushlane.diagnosis.causes import TaskStatus
from pushlane.model.times import HOUR_MS
from pushlane.now import ring
from pushlane.now.picture import Picture, TaskPicture
from pushlane.now.ring import Ring, largest_of

AT_MS = 10_000_000


class Clock:
    now_s = 50.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(ring, "time", clock)
    return clock


def got(task_id: str, observed: float | None, entitled: float | None = 1.0) -> TaskPicture:
    """A task that gets and is entitled to so much."""
    task = Task(id=task_id, level=Level.HIGH, lane=own_lane(task_id), state=State.RUNNING)
    status = TaskStatus("running", "")
    return TaskPicture(task, status, Progress(task_id), None, observed, entitled, None, 3.0)


def noted(ring: Ring, *looks: tuple[int, list[TaskPicture]]) -> None:
    """Looks, each so many ms after AT_MS."""
    for after_ms, tasks in looks:
        ring.note(Picture(AT_MS + after_ms, tasks))


def test_a_point_is_kept_every_five_seconds() -> None:
    kept = Ring()
    noted(kept, (0, [got("a", 1.0)]), (600, [got("a", 2.0)]), (5_000, [got("a", 3.0, None)]))
    points = kept.since(AT_MS + 5_000)
    assert [(one.at_ms - AT_MS, one.tasks.get("a")) for one in points] == [
        (0, (1.0, 1.0)),
        (5_000, (3.0, None)),
    ]


def test_points_are_of_one_hour() -> None:
    kept = Ring()
    noted(kept, (0, []), (5_000, []))
    assert [one.at_ms - AT_MS for one in kept.since(AT_MS + HOUR_MS)] == [5_000]


def test_fifty_tasks_with_most_are_kept_and_those_that_are_asked_for(clock: Clock) -> None:
    kept, tasks = Ring(), [got(f"t{number:03}", float(number), None) for number in range(100)]
    kept.ask("t007")
    kept.ask("gone")
    noted(kept, (0, tasks))
    clock.now_s += 61
    noted(kept, (5_000, tasks), (10_000, tasks[:10]))
    first, later, last = [one.tasks for one in kept.since(AT_MS + 10_000)]
    assert first.get("t007") == (7.0, None)
    assert [first.get(one) is None for one in ("t008", "t049", "t050", "t099", "gone")] == [
        *(True, True, False, False, True)
    ]
    assert later.get("t007") is None
    assert last.get("t007") == (7.0, None)


def test_of_very_many_that_are_asked_for_the_last_are_kept(clock: Clock) -> None:
    kept, tasks = Ring(), [got(f"t{number:03}", float(number), None) for number in range(200)]
    for number in range(60):
        kept.ask(f"t{number:03}")
    noted(kept, (0, tasks))
    [rates] = [one.tasks for one in kept.since(AT_MS)]
    assert [rates.get(one) is None for one in ("t009", "t010")] == [True, False]


def test_what_goes_is_by_sink_level_and_app() -> None:
    kept, bank = Ring(), got("b", 4.0)
    bank = replace(bank, task=Task(id="b", level=Level.LOW, lane="pool-0", app="bank"))
    noted(kept, (0, [got("a", 1.0), got("c", 2.0), bank]))
    [point] = kept.since(AT_MS)
    assert point.per_s == {("default", "high", "default"): 3.0}  # what is paused has no share


def test_the_largest_go_by_what_they_get_then_by_their_right_then_by_their_order() -> None:
    tasks = [
        got("slow", 1.0, 9.0),
        got("fast", 5.0, 1.0),
        got("new", None, 4.0),
        got("first", None, None),
        got("second", None, None),
    ]

    assert [one.task.id for one in largest_of(tasks, 4)] == ["fast", "slow", "new", "first"]
    assert largest_of(tasks, 9)[-1].task.id == "second"
