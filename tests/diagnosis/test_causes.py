"""What a task waits for is told by name, the most important first, and with what to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pushlane.core.lane import Why
from pushlane.core.names import pool_lanes
from pushlane.core.task import Level, Progress, State, Weights
from pushlane.diagnosis.causes import TaskStatuses, causes
from pushlane.diagnosis.look import diagnose
from pushlane.diagnosis.situation import unserved_sinks
from pushlane.model.limits import Limit, Subject
from pushlane.model.load import Standing
from pushlane.model.presence import LaneWait, Process, Resting, ServedSink, SinkTarget
from pushlane.model.reasons import Reasons
from tests.diagnosis.support import (
    NOW_MS,
    busy_sink,
    names,
    process_of,
    resting_sink,
    situation_of,
    task_of,
)

POOL_LANE = pool_lanes(1)[0]


@pytest.mark.parametrize("state", [State.DONE, State.CANCELLED, State.EXPIRED])
def test_a_task_that_has_ended_waits_for_nothing(state: State) -> None:
    task = task_of(state=state, finished_at_ms=5, reason="lunch")

    [cause] = causes(situation_of(task, 900, processes=[]))

    assert (cause.name, cause.since_ms) == (state, 5)
    assert f"it is {state}: lunch; 900 delivered" in cause.detail


def test_dead_pushes_of_a_task_that_is_done_can_be_looked_at() -> None:
    done = task_of(state=State.DONE)

    [cause] = causes(situation_of(done, progress=Progress("t", delivered=998, dead=2)))

    assert cause.do == "pushlane dead list --task t"


def test_dropped_pushes_are_told_with_their_reasons_or_where_those_are() -> None:
    done = task_of(state=State.DONE)
    counts = Progress("t", delivered=995, expired=2, dropped=3)
    dropped = Reasons("t", dropped={"suppressed": 2, "duplicate": 1})

    [told] = causes(situation_of(done, progress=counts, reasons=dropped))
    [older] = causes(situation_of(done, progress=counts))

    told_so = "995 delivered, 0 dead, 2 expired, 3 dropped"
    assert told.detail.endswith(f"{told_so} (suppressed (2), duplicate (1))")
    assert older.detail.endswith(f"{told_so} (pushlane results t)")


def test_a_scheduled_task_waits_for_its_start_alone() -> None:
    [cause] = causes(situation_of(task_of(not_before_ms=NOW_MS + 60_000)))

    assert (cause.name, cause.final) == ("scheduled", True)
    assert "2026-09-21" in cause.detail
    assert cause.do == "wait, or move it: pushlane reschedule t --not-before now"


def test_a_paused_task_says_why_and_how_it_goes_on() -> None:
    [cause] = causes(situation_of(task_of(state=State.PAUSED, reason="HTTP 401")))

    assert cause.detail == "it is paused: HTTP 401"
    assert cause.do == "pushlane resume t"


@pytest.mark.parametrize(
    ("stopped", "named"), [(False, ["paused", "deaths"]), (True, ["deaths", "paused"])]
)
def test_what_died_comes_before_a_pause_only_if_that_is_why(
    stopped: bool, named: list[str]
) -> None:
    paused = task_of(state=State.PAUSED, stopped=stopped)

    assert names(situation_of(paused, progress=Progress("t", dead=457))) == named


@pytest.mark.parametrize(
    ("fields", "do"),
    [
        ({"key": "k"}, "same --key"),
        ({}, "cancel the task"),
        ({"is_fed": True}, "spool send"),
        ({"is_fed": True, "key": "producer:t"}, "closed ten minutes later"),
    ],
)
def test_a_half_made_task_whose_maker_is_gone_is_stalled(
    fields: dict[str, object], do: str
) -> None:
    cause, *_ = causes(situation_of(task_of(total=None, **fields), is_stalled=True))

    assert cause.name == "stalled"
    assert do in cause.do


def test_a_task_left_open_with_nothing_left_says_that_its_producer_is_not_running() -> None:
    task = task_of(total=None, is_fed=True, left_with=3)

    [cause] = causes(situation_of(task, progress=Progress("t", delivered=3)))

    assert cause.name == "open"
    assert cause.detail == "its producer is not running, and nothing of it is left"
    assert "close(seal=True)" in cause.do


def test_a_task_left_open_shows_how_it_goes_until_nothing_is_left() -> None:
    task = task_of(total=None, is_fed=True, left_with=3)
    statuses = TaskStatuses([], now_ms=0)

    shown = [
        statuses.of(task, Progress("t", delivered=done), (), {}, is_stalled=False).state
        for done in (2, 3)
    ]

    assert shown == ["waiting", "open"]


def test_a_task_that_is_only_begun_waits_for_its_submit() -> None:
    assert names(situation_of(task_of(state=State.SUBMITTED, total=None))) == ["submitting"]


def test_without_a_dispatcher_nothing_goes() -> None:
    [cause] = causes(situation_of(processes=[]))

    assert (cause.name, cause.do) == (
        "no_dispatcher",
        "pushlane dispatch --sink webhook:URL",
    )


def test_a_sink_that_nobody_serves_is_named() -> None:
    [cause] = causes(situation_of(task_of(sinks=("sms",))))

    assert (cause.name, cause.do) == ("sink_unserved", "pushlane dispatch --serve sms")
    assert "sink sms, which nobody serves" in cause.detail


def test_a_later_sink_that_nobody_serves_is_named_beside_what_else_holds() -> None:
    chained = task_of(sinks=("default", "sms"), reached=("sms",))
    medium = Standing(task_of("m", Level.MEDIUM), 500)

    assert names(situation_of(chained)) == ["sink_unserved"]
    assert names(situation_of(chained, 0, medium)) == ["sink_unserved", "sharing"]


CHAINED = task_of(sinks=("default", "sms"), reached=("sms",))
MOVED_ON = {"task": CHAINED, "at_later": {"sms": 7}, "observed_per_s": 10.0}


@pytest.mark.parametrize(
    ("sms", "name"),
    [
        (None, "sink_unserved"),
        (resting_sink("open", "sms"), "sink_rests"),
        (resting_sink("rising", "sms"), "sink_recovers"),
        (busy_sink(100, name="sms", rate_per_s=5), "limit"),
    ],
)
def test_what_holds_pushes_at_a_later_sink_leaves_the_end_open(
    sms: ServedSink | None, name: str
) -> None:
    served = [busy_sink(100, in_flight=0), *([sms] if sms else [])]

    some = diagnose(situation_of(CHAINED, processes=[process_of(*served)], observed_per_s=1.0))
    moved = diagnose(situation_of(processes=[process_of(*served)], **MOVED_ON))

    assert [cause.name for cause in some.causes] == [name]
    assert moved.causes[0].name == name
    assert "sms" in moved.causes[0].detail
    assert (some.eta_s, moved.eta_s, moved.entitled_share) == (None, None, None)


def test_a_task_all_of_which_went_on_waits_for_nothing_at_its_first_sink() -> None:
    served = process_of(resting_sink(), busy_sink(100, name="sms"))

    found = diagnose(situation_of(processes=[served], **MOVED_ON))

    assert [(cause.name, cause.detail) for cause in found.causes] == [
        ("moved_on", "all that is left of it has gone on: 7 messages at sms")
    ]
    assert (found.entitled_share, found.eta_s) == (None, 100)


def test_a_later_sink_at_which_nothing_waits_holds_nothing() -> None:
    assert names(situation_of(CHAINED, waiting=1, at_later={"sms": 0})) == ["going"]


def test_a_process_of_an_old_version_serves_the_default_sink() -> None:
    old = Process(id="old", kind="dispatcher", pid=7, version="0.1.0")

    assert unserved_sinks(task_of(), [old]) == []
    assert names(situation_of(processes=[old])) == ["going"]


def test_a_sink_that_rests_says_why_since_when_and_when_it_is_tried() -> None:
    [cause] = causes(situation_of(processes=[process_of(resting_sink())]))

    assert (cause.name, cause.since_ms) == ("sink_rests", NOW_MS - 1_000)
    assert "sink webhook rests: no connection, since 2026-" in cause.detail
    assert "; next try 2026-" in cause.detail


def test_a_sink_that_rests_is_named_with_where_it_delivers_to() -> None:
    target = SinkTarget("webhook", "127.0.0.1:9", "hash")
    rests = Resting("sink default (open)", NOW_MS, "no connection", 0)
    sink = ServedSink(name="default", target=target, slots=1, resting=rests)
    task = situation_of(processes=[process_of(sink)])

    [told] = causes(replace(task, shows_targets=True))
    [hidden] = causes(task)

    assert told.detail.startswith("sink default (webhook at 127.0.0.1:9) rests: no connection")
    assert told.do == (
        "fix the sink: it is tried again by itself, and nothing is lost; if 127.0.0.1:9 is wrong, "
        "restart its dispatchers with the right URL"
    )
    assert "127.0.0.1" not in f"{hidden.detail}{hidden.do}"


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("sink sms (throttled)", "sink sms (fcm at a.b) gets fewer pushes"),
        ("sink sms (probing)", "sink sms (fcm at a.b) rests, and is tried"),
        ("sink sms (of a newer version)", "sink sms (fcm at a.b) (of a newer version)"),
        ("host a.b (open)", "host a.b rests"),
    ],
)
def test_only_a_sink_is_named_with_where_it_delivers_to(what: str, text: str) -> None:
    assert Resting(what, 0, "", 0).stands_at(SinkTarget("fcm", "a.b")) == text
    assert "fcm" not in Resting(what, 0, "", 0).stands_at(SinkTarget("fcm"))


def test_a_sink_that_rests_in_one_of_two_processes_does_not_hold_all() -> None:
    both = [process_of(resting_sink()), process_of(id="e")]

    first, second = causes(situation_of(processes=both))

    assert "in 1 of 2 processes" in first.detail
    assert second.name == "going"


def test_a_sink_that_recovers_is_told_beside_what_else_holds() -> None:
    assert names(situation_of(processes=[process_of(resting_sink("rising"))])) == [
        "sink_recovers",
        "going",
    ]


def test_quiet_hours_say_when_they_end() -> None:
    cause, *_ = causes(situation_of(task_of(quiet="00:00-23:59")))

    assert cause.name == "quiet_hours"
    assert cause.do == "wait, or let it go: pushlane reschedule t --quiet none"
    assert "end 2026-09-21 23:59:00 UTC" in cause.detail


@pytest.mark.parametrize(
    "why", ["format", "crowded", "delay-full", "keys", "refused", "look-up", "budget", "new-word"]
)
def test_what_processes_say_of_its_lane_is_told_once(why: str) -> None:
    waiting = (LaneWait("task-t", "default", why), LaneWait("task-other", "default", "keys"))
    processes = [process_of(id=name, waiting=waiting) for name in "ab"]

    assert names(situation_of(processes=processes)) == [f"lane_{why.replace('-', '_')}", "going"]


@pytest.mark.parametrize("why", sorted(set(Why) - {Why.HELD}))
def test_whatever_a_lane_waits_for_has_words_and_says_what_to_do(why: Why) -> None:
    waiting = (LaneWait("task-t", "default", why),)

    cause, *_ = causes(situation_of(processes=[process_of(waiting=waiting)]))

    assert cause.do
    assert not cause.detail.startswith("its lane waits: ")


def test_full_slots_say_what_they_can_take() -> None:
    cause, *_ = causes(situation_of(processes=[process_of(busy_sink(100, slots=50))]))

    assert cause.name == "slots_full"
    assert "50 slots x 1/0.5 s a delivery = 100 pushes/s" in cause.detail
    assert cause.do == "more --slots, or more processes"


def test_full_slots_say_how_many_processes_a_deadline_needs() -> None:
    due = task_of(total=3_000, expires_at_ms=NOW_MS + 10_000)

    cause, *_ = causes(situation_of(due, processes=[process_of(busy_sink(100))]))

    assert cause.do == "2 more processes, to be through before it expires"


def test_a_task_that_is_through_in_time_needs_no_process() -> None:
    due = task_of(total=900, expires_at_ms=NOW_MS + 10_000)
    beside = Standing(task_of("o"), 50)

    cause, *_ = causes(situation_of(due, 0, beside, processes=[process_of(busy_sink(100))]))

    assert cause.do == "more --slots, or more processes"


def test_a_task_that_expires_before_its_end_says_so_with_what_would_help() -> None:
    """It has half of 100/s, so 500 of its 1,000 pushes in the 10 s that are left."""
    due = task_of(level=Level.LOW, expires_at_ms=NOW_MS + 10_000)
    beside = Standing(task_of("o", Level.LOW, app="other"), 5_000)
    situation = situation_of(due, 0, beside, processes=[process_of(busy_sink(100))])

    found = diagnose(situation)

    assert found.eta_s == 20
    assert [cause.name for cause in found.causes] == ["expiry", "slots_full", "sharing"]
    assert found.causes[0].detail == (
        "it expires at 14:13:30 UTC, before its end at 14:13:40 UTC: about 500 pushes will expire"
    )
    assert found.causes[0].do == (
        "1 more process, or pushlane quota --app default 2, or pushlane promote t, or more slots; "
        "or a later expiry: pushlane reschedule t --expires TIME"
    )


def test_a_task_that_a_limit_keeps_from_its_end_in_time_says_which() -> None:
    due = task_of(expires_at_ms=NOW_MS + 10_000)
    limits = {Subject("task", "t"): Limit(rate_per_s=20)}
    situation = situation_of(due, processes=[process_of(busy_sink(100))], limits=limits)

    first, second, *_ = diagnose(situation).causes

    assert (first.name, second.name) == ("expiry", "limit")
    assert "about 800 pushes will expire" in first.detail
    assert first.do.startswith("pushlane limit task/t --rate N/s, or none; or a later expiry: ")


@pytest.mark.parametrize("expires_in_ms", [0, -1_000, 9_900, 60_000])
def test_a_task_that_expires_later_or_has_is_through_in_time(expires_in_ms: int) -> None:
    expires_ms = NOW_MS + expires_in_ms if expires_in_ms else 0
    situation = situation_of(
        task_of(expires_at_ms=expires_ms), processes=[process_of(busy_sink(100))]
    )

    assert "expiry" not in [cause.name for cause in diagnose(situation).causes]


def test_older_tasks_of_its_pool_lane_are_counted() -> None:
    mine = task_of("b", Level.LOW, lane=POOL_LANE, created_at_ms=2)
    older = Standing(task_of("a", Level.LOW, lane=POOL_LANE, created_at_ms=1), 700)
    younger = Standing(task_of("c", Level.LOW, lane=POOL_LANE, created_at_ms=3), 500)

    first, second = causes(situation_of(mine, 0, older, younger))

    assert first.name == "pool_lane"
    assert "1 older task with 700 pushes are ahead on its lane pool-0" in first.detail
    assert first.do.startswith("pushlane promote b")
    assert second.name == "sharing"


def test_pushes_that_wait_for_their_time_are_told() -> None:
    assert names(situation_of(later=3)) == ["later"]


def test_a_task_that_shares_says_with_whom_and_by_what() -> None:
    medium = Standing(task_of("m", Level.MEDIUM), 500)

    [cause] = causes(situation_of(task_of(), 0, medium))

    assert cause.name == "sharing"
    assert "with 1 other task, 6 to 3 for high, medium: 66.7 % of it for its quota" in cause.detail
    assert cause.do == "more slots"


@pytest.mark.parametrize(
    ("level", "app", "do"),
    [
        (Level.HIGH, "default", "pushlane quota t 2, or more slots"),
        (Level.HIGH, "news", "pushlane quota --app default 2, or more slots"),
        (Level.MEDIUM, "default", "pushlane quota t 2, or pushlane promote t, or more slots"),
    ],
)
def test_what_would_change_a_share_depends_on_who_shares(level: Level, app: str, do: str) -> None:
    other = Standing(task_of("o", level, app=app), 500)

    [cause] = causes(situation_of(task_of(level=level), 0, other))

    assert cause.do == do


def test_tasks_that_cannot_move_do_not_share() -> None:
    paused = Standing(task_of("p", state=State.PAUSED), 500)
    idle = Standing(task_of("f", is_fed=True, total=None), None)
    later = Standing(task_of("l", not_before_ms=NOW_MS + 1), 500)

    assert names(situation_of(task_of(), 0, paused, idle, later)) == ["going"]


def test_others_that_may_not_send_do_not_share() -> None:
    spent, moved = Standing(task_of("s"), 500), Standing(task_of("m"), 500, has_moved_on=True)
    own = Subject("task", "s")
    totals = {"limits": {own: Limit(total=9)}, "spent": {own: {"total": 9.0}}}

    assert names(situation_of(task_of(), 0, spent, moved, **totals)) == ["going"]


def test_others_that_are_limited_leave_what_they_may_not_take() -> None:
    slow = Standing(task_of("s"), 500)
    limits = {Subject("task", "s"): Limit(rate_per_s=5)}
    processes = [process_of(busy_sink(100, in_flight=0))]

    found = diagnose(situation_of(task_of(), 0, slow, limits=limits, processes=processes))

    assert found.entitled_share == pytest.approx(0.95)
    assert [(cause.name, cause.do) for cause in found.causes] == [("sharing", "more slots")]


def test_a_share_is_of_what_the_sink_takes() -> None:
    """It delivers 40 a second with slots free, of which a limit leaves 30 for the task."""
    slow = busy_sink(40.0, delivery_s=0.05, in_flight=2)
    limits = {Subject("task", "o"): Limit(rate_per_s=10)}
    other = Standing(task_of("o"), 500)

    found = diagnose(situation_of(None, 0, other, processes=[process_of(slow)], limits=limits))

    assert found.entitled_share == pytest.approx(0.75)


def test_a_task_whose_total_is_spent_has_no_share() -> None:
    own = Subject("task", "t")

    found = diagnose(situation_of(limits={own: Limit(total=9)}, spent={own: {"total": 9.0}}))

    assert (found.entitled_share, found.eta_s) == (None, None)


def test_what_holds_all_hides_what_only_slows() -> None:
    limits = {Subject("task", "t"): Limit(rate_per_s=1)}
    paused = task_of(state=State.PAUSED)

    assert names(situation_of(paused, limits=limits)) == ["paused"]
    assert names(situation_of(paused, limits=limits, processes=[])) == ["paused", "no_dispatcher"]


def test_a_diagnosis_has_share_pace_backlog_and_end() -> None:
    medium = Standing(task_of("m", Level.MEDIUM), 10_000)
    now = situation_of(
        task_of(), 400, medium, processes=[process_of(busy_sink(90))], observed_per_s=61.0
    )

    found = diagnose(now)

    assert found.entitled_share == pytest.approx(2 / 3)
    assert (found.observed_per_s, found.backlog) == (61.0, 600)
    assert found.eta_s == pytest.approx(10)


def test_a_task_that_is_held_has_no_end() -> None:
    found = diagnose(situation_of(task_of(sinks=("sms",)), observed_per_s=0.0))

    assert (found.entitled_share, found.eta_s) == (None, None)


def test_without_a_rate_of_the_sink_the_observed_one_tells_the_end() -> None:
    found = diagnose(situation_of(observed_per_s=50.0, weights=Weights()))

    assert found.eta_s == pytest.approx(20)


def test_a_process_that_says_nothing_of_its_sink_is_understood() -> None:
    bare = process_of(ServedSink(name="default"))

    assert diagnose(situation_of(processes=[bare])).eta_s is None


def test_a_target_that_never_delivered_is_to_be_checked_or_accepted() -> None:
    why = "webhook at h has answered HTTP 404 to all 20 pushes: is the URL right?"
    resting = Resting("sink sms (open)", NOW_MS, why, 0, is_unproven=True)
    served = process_of(ServedSink(name="default", slots=10, resting=resting))

    [cause] = causes(situation_of(processes=[served]))

    assert f"{why} Since " in cause.detail
    assert cause.do.endswith("if its answers are right: pushlane sinks accept default")
