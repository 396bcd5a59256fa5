"""A change is told by what the sink takes now, whatever limits the change lifts or sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pushlane.core.task import State
from pushlane.diagnosis.preview import Moved, compare
from pushlane.model.limits import Limit, Limits, Subject
from pushlane.model.load import SinkLoad, Standing, sink_now
from tests.diagnosis.support import NOW_MS, busy_sink, load_of, process_of, task_of

NEWS = Subject("app", "news")
HELD = sink_now([process_of(busy_sink(29.0, slots=4, delivery_s=0.02, in_flight=2))], "default")
"""Four slots of 20 ms take 200 a second; it delivers 29, as the limit of news is 30."""


def news(task_id: str, left: int = 6_000, **fields: Any) -> Standing:
    return Standing(task_of(task_id, app="news", **fields), left)


def changed(
    standings: list[Standing], new: list[Standing] | None = None, **fields: Any
) -> tuple[Moved, dict[str, tuple[float | None, float | None]]]:
    """Compare a load with one that has other fields; return the ends of all tasks in both."""
    load = load_of(sink=HELD, limits={NEWS: Limit(rate_per_s=30)})
    change: Callable[[SinkLoad], SinkLoad] = lambda load: replace(load, **fields)  # noqa: E731
    moved = compare(load, standings, change, {}, new or [])
    return moved, {one.task.id: (one.before_s, one.after_s) for one in moved.ends}


@pytest.mark.parametrize("limits", [{}, {NEWS: Limit(rate_per_s=1_000)}])
def test_without_the_limit_that_held_the_sink_down_tasks_end_sooner(limits: Limits) -> None:
    moved, ends = changed([news("a"), news("b")], limits=limits)

    assert moved.per_s == pytest.approx(200)
    assert ends == {one: pytest.approx((400, 60)) for one in "ab"}


def test_a_new_task_takes_what_those_with_a_limit_leave() -> None:
    moved, ends = changed([news("a")], [Standing(task_of("new", app="shop"), 50)])

    # 30 of 200 a second in both; the 50 have the other 170 for 0.3 s
    assert ends["a"] == pytest.approx((200, 200))
    assert ends["new"] == (None, pytest.approx(50 / 170))
    [high, of_shop] = moved.parts
    assert (high.before, high.after) == pytest.approx((0.15, 1))
    assert of_shop.after == pytest.approx(0.85)


def test_what_a_sink_delivers_while_slots_are_free_is_its_pace_after_the_change_too() -> None:
    """A dispatcher that is slower than its sink still sets the pace: `shop` has no limit."""
    moved, ends = changed([news("a"), Standing(task_of("s", app="shop"), 290)], limits={})

    assert moved.per_s == 29
    assert ends["s"] == pytest.approx((20, 20))


def test_what_a_sink_delivered_before_a_task_came_is_not_its_pace() -> None:
    """`shop` has no limit, but came two seconds ago: the rate is of before."""
    came = Standing(task_of("s", app="shop", created_at_ms=NOW_MS - 2_000), 170_000)
    moved, ends = changed([news("a"), came], limits={})

    assert moved.per_s == pytest.approx(200)
    assert ends["a"] == pytest.approx((200, 60))


def test_a_task_that_the_change_stops_is_told_apart() -> None:
    load = load_of(per_s=100.0)
    both = [Standing(task_of(one), 1_000) for one in "ab"]
    stopped = Standing(task_of("a", state=State.CANCELLED, expires_at_ms=load.now_ms + 1), 1_000)

    moved = compare(load, both, lambda one: replace(one, standings=[stopped, both[1]]), {})

    assert {one.task.id: one.is_stopped for one in moved.ends} == {"a": True, "b": False}
    assert [one.misses(load.now_ms) for one in moved.ends] == [(False, False)] * 2
