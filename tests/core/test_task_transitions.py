"""What may follow what in the life of a task."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pushlane.core.errors import BadInput, InvalidChange
from pushlane.core.names import own_lane, pool_lane
from pushlane.core.push import Push
from pushlane.core.task import MAX_QUOTA, Level, Progress, State, Task
from pushlane.model import task_changes
from pushlane.model.task_changes import NewTimes

TASK = Task(id="t1", level=Level.HIGH, lane=own_lane("t1"))
RUNNING = replace(TASK, state=State.RUNNING)
POOLED = Task(id="t1", level=Level.LOW, lane=pool_lane("t1", 8), state=State.RUNNING)
TERMINAL = [replace(TASK, state=state) for state in State if state.is_terminal]


def test_a_submitted_task_starts():
    assert task_changes.start(TASK).state is State.RUNNING


def test_a_paused_task_does_not_start_by_itself():
    paused = task_changes.pause()(TASK)

    assert task_changes.start(paused) is paused


def test_a_task_is_sealed_with_its_total():
    assert task_changes.seal(5)(RUNNING).total == 5


def test_sealing_again_with_the_same_total_changes_nothing():
    sealed = task_changes.seal(5)(RUNNING)

    assert task_changes.seal(5)(sealed) == sealed


def test_sealing_with_another_total_is_refused():
    with pytest.raises(InvalidChange, match="5 pushes, not 6"):
        task_changes.seal(6)(task_changes.seal(5)(RUNNING))


def test_pause_and_resume_lead_back():
    paused = task_changes.pause("the sink says 401")(RUNNING)

    assert (paused.state, paused.reason) == (State.PAUSED, "the sink says 401")
    assert task_changes.resume(paused) == RUNNING


def test_a_pooled_task_gets_a_lane_of_its_own_when_paused():
    assert task_changes.pause()(POOLED).lane == own_lane("t1")


def test_pausing_again_keeps_the_first_reason():
    paused = task_changes.pause("first")(RUNNING)

    assert task_changes.pause("second")(paused) is paused


def test_only_a_paused_task_is_resumed():
    assert task_changes.resume(RUNNING) is RUNNING
    with pytest.raises(InvalidChange, match="submitted"):
        task_changes.resume(TASK)


@pytest.mark.parametrize("task", [TASK, RUNNING, POOLED, task_changes.pause()(RUNNING)])
def test_a_task_that_has_not_ended_is_cancelled_with_the_time(task):
    cancelled = task_changes.cancel(task)

    assert cancelled.state is State.CANCELLED
    assert cancelled.finished_at_ms > 0
    assert task_changes.cancel(cancelled) is cancelled


@pytest.mark.parametrize("quota", [0, -1, MAX_QUOTA + 1])
def test_a_quota_out_of_range_is_refused(quota):
    with pytest.raises(BadInput, match=f"quota {quota} is not from 1 to {MAX_QUOTA}"):
        task_changes.set_quota(quota)(RUNNING)


@pytest.mark.parametrize("quota", [1, MAX_QUOTA])
def test_a_quota_in_range_is_set(quota):
    assert task_changes.set_quota(quota)(RUNNING).quota == quota


def test_promoting_downwards_is_refused_and_names_the_way():
    with pytest.raises(InvalidChange, match="pushlane demote t1 --to low"):
        task_changes.promote(Level.LOW)(RUNNING)


@pytest.mark.parametrize("state", [State.DONE, State.EXPIRED])
def test_an_ended_task_has_nothing_left_to_cancel(state):
    with pytest.raises(InvalidChange, match=f"task t1 is {state}.*nothing left to send"):
        task_changes.cancel(replace(TASK, state=state))


@pytest.mark.parametrize("task", TERMINAL)
def test_an_ended_task_is_not_resumed_but_cloned(task):
    is_kept = task.state is not State.CANCELLED
    way_on = "pushlane clone t1, or submit" if is_kept else "again: submit"
    with pytest.raises(InvalidChange, match=f"{way_on} the file again$"):
        task_changes.resume(task)


@pytest.mark.parametrize("task", TERMINAL)
@pytest.mark.parametrize(("key", "other"), [("k", "k-2"), ("k-2", "k-3"), ("k-0", "k-0-2")])
def test_an_ended_task_with_a_key_is_submitted_again_under_another(task, key, other):
    with pytest.raises(InvalidChange, match=f"again under another key, such as {other}$"):
        task_changes.resume(replace(task, key=key))


def test_a_promoted_task_has_its_level_and_a_lane_of_its_own():
    promoted = task_changes.promote(Level.HIGH)(POOLED)

    assert (promoted.level, promoted.lane, promoted.state) == (
        Level.HIGH,
        own_lane("t1"),
        State.RUNNING,
    )


def test_a_pooled_task_with_a_quota_has_its_level_and_a_lane_of_its_own():
    given = task_changes.set_quota(2)(POOLED)

    assert (given.level, given.lane, given.quota, given.state) == (
        Level.LOW,
        own_lane("t1"),
        2,
        State.RUNNING,
    )


MOVES = [
    task_changes.pause(),
    task_changes.promote(Level.LOW),
    task_changes.isolate,
    task_changes.set_quota(1),
]


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("noted", ["", "pool-7"])
def test_a_task_that_moves_knows_where_its_pushes_began(move, noted):
    moved = move(replace(POOLED, first_lane=noted))

    assert (moved.lane, moved.first_lane) == (own_lane("t1"), noted or POOLED.lane)


@pytest.mark.parametrize("move", MOVES[1:])
def test_a_task_on_its_own_lane_stays_as_it_is_when_it_is_moved_there(move):
    low = replace(RUNNING, level=Level.LOW)

    assert move(low) == low


@pytest.mark.parametrize("task", TERMINAL)
@pytest.mark.parametrize(
    "edit",
    [task_changes.pause(), task_changes.set_quota(2), task_changes.promote(Level.HIGH)],
)
def test_an_ended_task_cannot_change(task, edit):
    with pytest.raises(InvalidChange, match=f"task t1 is {task.state}"):
        edit(task)


@pytest.mark.parametrize("task", TERMINAL)
def test_an_ended_task_stays_as_it_ended(task):
    assert task_changes.finish(State.DONE)(task) is task


@pytest.mark.parametrize("state", [State.DONE, State.EXPIRED])
def test_a_task_finishes_with_the_time(state):
    finished = task_changes.finish(state)(RUNNING)

    assert finished.state is state
    assert finished.finished_at_ms > 0


def test_a_dropped_lane_is_noted():
    assert task_changes.lane_dropped(RUNNING).lane_dropped


def test_a_task_is_stopped_for_its_deaths_once():
    ruled = replace(RUNNING, stop_if_dead="5%")
    stopped = task_changes.stop("6 of 100 died")(ruled)

    assert (stopped.state, stopped.reason, stopped.stopped) == (
        State.PAUSED,
        "6 of 100 died",
        True,
    )
    resumed = task_changes.resume(stopped)
    assert (resumed.state, resumed.reason) == (State.RUNNING, "")
    assert task_changes.stop("7 of 100 died")(resumed) is resumed


def test_a_new_limit_of_deaths_holds_again():
    stopped = replace(RUNNING, stop_if_dead="5%", stopped=True)
    counted = Progress(stopped.id, delivered=50, dead=50, failed=40)

    assert task_changes.set_stop_if_dead("5%", counted)(stopped).stop_since == (100, 40)
    assert task_changes.set_stop_if_dead("5%", counted)(stopped).stopped is False
    assert task_changes.set_stop_if_dead("off", counted)(stopped).stop_if_dead == "off"
    with pytest.raises(BadInput, match="has no %"):
        task_changes.set_stop_if_dead("5", counted)(stopped)
    with pytest.raises(BadInput, match="cannot be read"):
        task_changes.set_stop_if_dead("", counted)(stopped)


@pytest.mark.parametrize("fields", [{}, {"state": State.PAUSED}, {"state": State.DONE}])
def test_what_has_no_rule_or_does_not_run_is_not_stopped(fields):
    task = replace(RUNNING, **({"stop_if_dead": "5%"} | fields if fields else {}))

    assert task_changes.stop("all died")(task) is task


NOW_MS = 1_900_000_000_000
HOUR_MS = 3_600_000
WAITS = replace(RUNNING, not_before_ms=NOW_MS + HOUR_MS, quiet="22:00-08:00", zone="Asia/Tokyo")


def moved(task: Task, **times: int | str) -> Task:
    return task_changes.reschedule(NewTimes(**times), NOW_MS)(task)


def test_what_is_not_given_stays_when_a_task_is_rescheduled():
    changed = moved(WAITS, expires_at_ms=NOW_MS + 2 * HOUR_MS)

    assert changed == replace(WAITS, expires_at_ms=NOW_MS + 2 * HOUR_MS, first_expiry_ms=0)


def test_the_times_that_a_task_has_change_nothing():
    same = moved(WAITS, not_before_ms=WAITS.not_before_ms, quiet=" 22:00-08:00", zone="Asia/Tokyo")

    assert same == WAITS


@pytest.mark.parametrize("had_ms", [0, NOW_MS - HOUR_MS, NOW_MS])
def test_a_task_that_has_started_cannot_start_at_once_again(had_ms):
    task = replace(RUNNING, not_before_ms=had_ms)

    assert moved(task, not_before_ms=0) == task


@pytest.mark.parametrize(
    ("times", "goes_earlier"),
    [
        ({"not_before_ms": 0}, True),
        ({"not_before_ms": NOW_MS + 1}, True),
        ({"not_before_ms": NOW_MS + 2 * HOUR_MS}, False),
        ({"quiet": ""}, True),
        ({"quiet": "22:00-07:00"}, True),
        ({"zone": "Europe/Berlin"}, True),
        ({"expires_at_ms": NOW_MS + 9 * HOUR_MS}, False),
    ],
)
def test_the_leader_is_told_when_what_waits_may_go_earlier(times, goes_earlier):
    changed = moved(WAITS, **times)

    assert (changed.recall_ms == NOW_MS) is goes_earlier
    assert bool(changed.recall_ms) is goes_earlier


def test_hours_where_there_were_none_let_nothing_go_earlier():
    assert moved(RUNNING, quiet="22:00-08:00").recall_ms == 0


def test_each_change_of_the_same_millisecond_is_one_of_its_own():
    first = moved(WAITS, quiet="")
    second = moved(first, not_before_ms=0)

    assert second.recall_ms > first.recall_ms
    assert task_changes.recalled(first.recall_ms)(second) is second
    assert task_changes.recalled(second.recall_ms)(second).recall_ms == 0


def test_the_expiry_of_the_submit_is_kept_however_often_a_task_has_another():
    first = replace(RUNNING, expires_at_ms=NOW_MS + HOUR_MS)
    third = moved(moved(first, expires_at_ms=NOW_MS + 2 * HOUR_MS), expires_at_ms=0)

    assert (third.first_expiry_ms, third.expires_at_ms) == (NOW_MS + HOUR_MS, 0)


def test_a_push_has_the_expiry_of_its_task_unless_it_has_its_own():
    task = moved(replace(RUNNING, expires_at_ms=NOW_MS + 5), expires_at_ms=NOW_MS + HOUR_MS)
    carries = Push("t1", 1, "anna", expires_at_ms=NOW_MS + 5)
    own = Push("t1", 2, "bert", expires_at_ms=NOW_MS + 6)

    assert task.dated(carries) == replace(carries, expires_at_ms=NOW_MS + HOUR_MS)
    assert task.dated(own) is own
    assert RUNNING.dated(carries) is carries


@pytest.mark.parametrize("times", [{"not_before_ms": NOW_MS + 1}, {"quiet": "22:00-08:00"}])
def test_a_pooled_task_that_is_to_wait_gets_a_lane_of_its_own(times):
    changed = moved(POOLED, **times)

    assert (changed.lane, changed.first_lane) == (own_lane("t1"), POOLED.lane)


def test_a_pooled_task_that_expires_otherwise_stays_in_the_pool():
    assert moved(POOLED, expires_at_ms=NOW_MS + 1).lane == POOLED.lane


@pytest.mark.parametrize("task", TERMINAL)
def test_a_finished_task_cannot_be_rescheduled(task):
    with pytest.raises(InvalidChange, match=f"is {task.state}: a finished task cannot be resched"):
        moved(task, not_before_ms=0)


@pytest.mark.parametrize(
    ("task", "times", "said"),
    [
        (RUNNING, {"not_before_ms": NOW_MS - 5_000}, "the start is 5 s in the past; give `now`"),
        (RUNNING, {"expires_at_ms": NOW_MS - 5_000}, "the expiry is 5 s in the past"),
        (WAITS, {"expires_at_ms": NOW_MS + 1}, "would expire 3600 s before it starts"),
        (
            replace(RUNNING, expires_at_ms=NOW_MS + HOUR_MS),
            {"not_before_ms": NOW_MS + 2 * HOUR_MS},
            "would expire 3600 s before it starts",
        ),
        (RUNNING, {"zone": "Asia/Tokyo"}, "a time zone has no effect without quiet hours"),
        (WAITS, {"zone": "Asia/Tokio"}, "did you mean 'Asia/Tokyo'"),
        (RUNNING, {"quiet": "22-8"}, "quiet hours '22-8' are not of the form"),
    ],
)
def test_times_that_cannot_be_are_refused(task, times, said):
    with pytest.raises(BadInput, match=said):
        moved(task, **times)


def test_a_task_that_has_another_expiry_by_now_does_not_expire():
    expire = task_changes.expire(NOW_MS)
    due = replace(RUNNING, expires_at_ms=NOW_MS)
    later = replace(RUNNING, expires_at_ms=NOW_MS + 1)

    assert expire(due).state is State.EXPIRED
    assert expire(later) is later
