"""Tasks, weights and names: what is refused, and what sorts how."""

from __future__ import annotations

import pytest

from pushlane.core.errors import BadInput
from pushlane.core.names import own_lane, pool_lane, pool_lanes
from pushlane.core.task import ACTIVE_STATES, Level, Progress, State, Task, Weights
from pushlane.model.names import new_task_id
from pushlane.model.task_changes import settled


def test_weights_are_read_as_they_are_written():
    assert Weights.parse("5:4:0") == Weights(5, 4, 0)
    assert str(Weights.parse("5:4:0")) == "5:4:0"


@pytest.mark.parametrize("text", ["", "6:3", "6:3:1:1", "a:b:c", "6:-3:1", "6.5:3:1", "6:3:1\n"])
def test_malformed_weights_are_refused_with_an_example(text):
    with pytest.raises(BadInput, match="6:3:1"):
        Weights.parse(text)


def test_weights_that_are_all_zero_are_refused():
    with pytest.raises(BadInput, match="all zero"):
        Weights.parse("0:0:0")


def test_weights_over_the_limit_are_refused():
    with pytest.raises(BadInput, match="1000"):
        Weights.parse("1001:1:1")


def test_task_ids_are_unlike_each_other_and_sort_by_time(monkeypatch):
    times_ns = iter([1_000_000_000_000_000_000, 1_000_000_000_001_000_000])
    monkeypatch.setattr("pushlane.core.task.time.time_ns", lambda: next(times_ns))

    earlier, later = new_task_id(), new_task_id()

    assert earlier < later
    assert len(earlier) == len(later) == 14


def test_a_task_on_a_pool_lane_is_pooled():
    lane = pool_lane("t1", 8)

    assert lane in pool_lanes(8)
    assert Task(id="t1", level=Level.LOW, lane=lane).pooled
    assert not Task(id="t1", level=Level.LOW, lane=own_lane("t1")).pooled


def test_a_task_starts_on_the_same_pool_lane_every_time():
    assert pool_lane("t1", 8) == pool_lane("t1", 8)


def test_states_are_active_or_terminal():
    terminal = {state for state in State if state.is_terminal}

    assert terminal == {State.DONE, State.CANCELLED, State.EXPIRED}
    assert set(ACTIVE_STATES) == set(State) - terminal


def test_progress_adds_up_every_way_to_end():
    assert Progress("t", delivered=1, dead=2, expired=3, dropped=4).finished == 10


COUNTED = Progress("t", delivered=5, dead=1, expired=2, dropped=1)


def ended(state: State, total: int | None) -> Task:
    return Task(id="t", level=Level.HIGH, lane=own_lane("t"), state=state, total=total)


def test_what_a_cancelled_task_never_sent_counts_as_dropped():
    progress = settled(ended(State.CANCELLED, 100), COUNTED)

    assert (progress.dropped, progress.finished) == (92, 100)


def test_what_an_expired_task_never_sent_counts_as_expired():
    progress = settled(ended(State.EXPIRED, 100), COUNTED)

    assert (progress.expired, progress.finished) == (93, 100)


@pytest.mark.parametrize("state", [State.RUNNING, State.PAUSED, State.DONE])
def test_only_a_task_cut_short_counts_what_was_never_sent(state):
    assert settled(ended(state, 100), COUNTED) == COUNTED


def test_a_task_cancelled_before_its_submit_was_complete_counts_what_was_taken():
    assert settled(ended(State.CANCELLED, None), COUNTED) == COUNTED
