"""What waits for its time is counted apart, and no end is foretold that leaves it out."""

from __future__ import annotations

import pytest

from pushlane.backends.ports import Delayed
from pushlane.core.names import own_lane
from pushlane.core.task import Progress, Task
from pushlane.diagnosis.causes import TaskStatuses, causes
from pushlane.diagnosis.look import diagnose
from pushlane.model.due import QUARTER_MS, PutOff
from pushlane.model.presence import Process, Resting, ServedSink
from tests.diagnosis.support import (
    NOW_MS,
    busy_sink,
    names,
    process_of,
    resting_sink,
    situation_of,
    task_of,
)

HOUR_MS = 3_600_000


def put_off(pushes: int, in_ms: int, reason: str = "quiet_hours", zone: str = "") -> PutOff:
    due_ms = NOW_MS + in_ms
    return PutOff("t", reason, due_ms // QUARTER_MS, pushes, due_ms, due_ms, zone)


def status(task: Task, *notes: PutOff, delivered: int = 0, dead: int = 0, processes=None):
    found = [process_of()] if processes is None else processes
    progress = Progress(task.id, delivered=delivered, dead=dead)
    return TaskStatuses(found, NOW_MS).of(task, progress, notes, {}, is_stalled=False)


def test_what_waits_is_told_by_reason_with_its_first_and_last_time() -> None:
    notes = (put_off(3, HOUR_MS), put_off(4, 5 * HOUR_MS), put_off(2, 60_000, "retry"))

    retry, quiet = causes(situation_of(task_of(), 991, later=9, waiting=0, put_off=notes))

    assert (retry.name, quiet.name) == ("later_retry", "later_quiet_hours")
    assert quiet.detail.startswith("7 wait for quiet hours: the next may go ")
    assert ", the last " in quiet.detail


def test_no_more_slots_are_advised_while_all_that_is_left_waits() -> None:
    notes = (put_off(10, HOUR_MS),)

    assert names(situation_of(task_of(), 990, later=10, waiting=0, put_off=notes)) == [
        "later_quiet_hours"
    ]


def test_an_end_is_never_before_the_last_push_may_go() -> None:
    busy = [process_of(busy_sink())]
    notes = (put_off(10, 5 * HOUR_MS),)

    found = diagnose(situation_of(task_of(), 500, later=10, put_off=notes, processes=busy))

    assert found.eta_s == pytest.approx(5 * 3600, abs=1)


def test_no_end_is_told_while_it_is_not_known_when_pushes_may_go() -> None:
    busy = [process_of(busy_sink())]

    found = diagnose(situation_of(task_of(), 500, later=10, waiting=1, processes=busy))

    assert found.eta_s is None
    assert "10 wait for their time: when they may go is not known" in found.causes[0].detail


def test_what_an_older_version_put_off_is_told_by_a_store_that_knows() -> None:
    delayed = Delayed(10, NOW_MS + HOUR_MS, NOW_MS + 2 * HOUR_MS)
    busy = [process_of(busy_sink())]

    found = diagnose(
        situation_of(task_of(), 990, later=10, waiting=0, delayed=delayed, processes=busy)
    )

    assert found.eta_s == pytest.approx(2 * 3600, abs=1)


def test_pushes_whose_zones_are_not_known_yet_make_the_end_unknown() -> None:
    busy = [process_of(busy_sink())]
    task = task_of(quiet="22:00-08:00", zone_column="tz")

    found = diagnose(situation_of(task, 500, processes=busy))
    knows = diagnose(situation_of(task, 500, processes=busy, knows_rows=True))

    assert (found.eta_s, found.eta_note) == (
        None,
        "recipients in their quiet hours wait until those end",
    )
    assert knows.eta_s == pytest.approx(5)


def test_states_say_whether_a_task_waits_rests_or_fails() -> None:
    task = task_of()

    assert status(task).state == "running"
    assert status(task, processes=[]).state == "waiting"
    rests = status(task, processes=[process_of(resting_sink())])
    assert rests.state == "waiting"
    assert rests.reason == "sink default rests: no connection since 14:13:19 UTC"
    assert status(task, put_off(10, HOUR_MS), delivered=990).state == "resting"
    assert status(task, put_off(10, HOUR_MS), delivered=900).state == "running"
    assert status(task, dead=60, delivered=40).state == "failing"
    assert status(task_of(lane=own_lane("t"), not_before_ms=NOW_MS + 1)).state == "scheduled"


def test_a_sink_that_rests_since_another_day_says_since_which() -> None:
    at_ms = NOW_MS - NOW_MS % (24 * HOUR_MS) - HOUR_MS
    resting = Resting("sink default (open)", at_ms, "no connection", NOW_MS + 1_000)
    sink = ServedSink(name="default", slots=10, resting=resting)

    rests = status(task_of(), processes=[process_of(sink)])

    assert rests.reason == "sink default rests: no connection since 2026-09-20 23:00:00 UTC"


def test_a_task_whose_rest_went_on_to_a_sink_that_rests_waits_there() -> None:
    task = task_of(sinks=("default", "sms"), reached=("sms",))
    rests = [process_of(ServedSink(name="default", slots=10), resting_sink(name="sms"))]
    first_rests = [process_of(resting_sink(), ServedSink(name="sms", slots=10))]

    def stands(processes: list[Process], **fields: int) -> str:
        now = situation_of(task, at_later={"sms": 5}, processes=processes, **fields)
        return f"{diagnose(now).status.state} {diagnose(now).status.reason}".strip()

    assert stands(rests) == "waiting sink sms rests: no connection since 14:13:19 UTC"
    assert stands(rests, waiting=1) == "running"
    assert stands(first_rests) == "running"
    assert stands(first_rests, waiting=1).startswith("waiting sink default rests: ")


def test_what_is_left_at_several_later_sinks_waits_only_if_all_of_these_rest() -> None:
    task = task_of(sinks=("default", "sms", "mail"), reached=("sms", "mail"))
    rests = [process_of(resting_sink(name="sms"), ServedSink(name="mail", slots=10))]

    def state(**at_later: int) -> str:
        return diagnose(situation_of(task, at_later=at_later, processes=rests)).status.state

    assert state(sms=5, mail=0) == "waiting"
    assert state(sms=5, mail=1) == "running"
