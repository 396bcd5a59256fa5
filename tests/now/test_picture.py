"""What the view of now shows of each task, and what its verdict names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from pushlane.core.names import lane_at, own_lane
from pushlane.core.task import Level, Progress, State, Task, Weights
from pushlane.model.limits import Limit, Subject
from pushlane.model.load import SinkLoad
from pushlane.model.presence import MOST_LANES, Process, Resting, ServedSink
from pushlane.model.task_changes import PAUSED_AT_SUBMIT
from pushlane.now.picture import Picture, picture_of, shares
from pushlane.now.rates import MOST_AT_ONCE, Rates
from pushlane.now.verdict import held, length, to_show, verdict, without
from pushlane.version import VERSION

AT_MS = 1_000_000
WEIGHTS = Weights(6, 3, 1)


def task(task_id: str, level: Level = Level.HIGH, app: str = "shop", **fields: object) -> Task:
    given = {"state": State.RUNNING, "total": 1_000, "name": task_id, **fields}
    return Task(id=task_id, level=level, lane=own_lane(task_id), app=app, **given)  # type: ignore[arg-type]


def process(**fields: object) -> Process:
    told: dict[str, Any] = {"slots": 10, "in_flight": 10, "delivery_s": 0.1, **fields}
    served = ServedSink(name="default", **told)
    return Process(
        id="p", kind="dispatcher", pid=1, version=VERSION, serves=("default",), served=(served,)
    )


SERVING = process(delivered_per_s={"high": 100.0})
IDLE = Process(id="p", kind="dispatcher", pid=1, version=VERSION, serves=("default",))
"""It has delivered nothing yet: nobody knows what its sink takes."""


def counted(ended: Mapping[str, tuple[int, int]], over_s: float = 2.0) -> Rates:
    """Rates of tasks of which so many had ended first, and so many after some seconds."""
    rates = Rates()
    for place, at_s in enumerate((0.0, over_s)):
        rates.take([Progress(key, delivered=counts[place]) for key, counts in ended.items()], at_s)
    return rates


def seen(
    tasks: Sequence[Task],
    rates: Rates | None = None,
    processes: Sequence[Process] = (SERVING,),
    limits: Mapping[Subject, Limit] | None = None,
    weights: Weights = WEIGHTS,
    before: Picture | None = None,
) -> Picture:
    def load_of(**fields: object) -> SinkLoad:
        return SinkLoad(weights=weights, limits=limits or {}, now_ms=AT_MS, **fields)  # type: ignore[arg-type]

    return picture_of(tasks, rates or Rates(), processes, load_of, AT_MS, before=before)


def said(now: Picture) -> str:
    return verdict(now, now.tasks, held(now, now.tasks)).text


def test_each_is_entitled_to_its_part_and_all_levels_to_theirs() -> None:
    now = seen([task("a"), task("b", app="bank"), task("c", Level.MEDIUM)])
    assert {one.task.id: one.entitled_per_s for one in now.tasks} == pytest.approx(
        {"a": 100 * 6 / 9 / 2, "b": 100 * 6 / 9 / 2, "c": 100 * 3 / 9}
    )
    levels = {one.level: one.entitled_per_s for one in shares(now.tasks) if one.app is None}
    assert levels == pytest.approx({Level.HIGH: 100 * 6 / 9, Level.MEDIUM: 100 * 3 / 9})
    [bank] = [one for one in shares(now.tasks) if one.app == "bank"]
    assert (bank.tasks, bank.left) == (1, 1_000)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"weights": Weights(1, 1, 1)},
        {"limits": {Subject("app", "bank"): Limit(rate_per_s=5)}},
        {"processes": (process(delivered_per_s={"high": 50.0}),)},
        {"tasks": [task("a", quota=3), task("b"), task("c", Level.LOW, app="bank")]},
        {"tasks": [task("a"), task("c", Level.LOW, app="bank")]},
        {
            "tasks": [
                task("a", not_before_ms=AT_MS + 1),
                task("b"),
                task("c", Level.LOW, app="bank"),
            ]
        },
        {"rates": counted({"a": (900, 1_000)})},
    ],
)
def test_what_tasks_were_entitled_to_stays_while_nothing_changes_by_which_they_share(
    changed: dict[str, Any],
) -> None:
    tasks = [task("a"), task("b"), task("c", Level.LOW, app="bank")]
    before, asked = seen(tasks), {"tasks": tasks, **changed}
    anew, after = seen(**asked), seen(**asked, before=before)

    assert after.tasks == anew.tasks
    assert (after.sinks[0].rates is before.sinks[0].rates) == (not changed)


def test_what_goes_is_what_was_counted_between_looks() -> None:
    now = seen([task("a"), task("b")], counted({"a": (100, 160), "b": (0, 0)}))
    assert [one.observed_per_s for one in now.tasks] == [30.0, 0.0]
    assert [one.left for one in now.tasks] == [840, 1_000]
    assert [one.ends_at_ms for one in now.tasks] == pytest.approx(
        [AT_MS + 840 * 20, AT_MS + 1_840 * 10]
    )


def test_before_two_looks_processes_say_how_fast_tasks_go() -> None:
    now = seen([task("a")], processes=[process(tasks_per_s={"a": 7.0})])
    assert now.tasks[0].observed_per_s == 7.0


@pytest.mark.parametrize(
    ("said", "slots"),
    [
        ([{"task-a": 7, "task-b": 3}], [7, 3, 0]),
        ([{"task-a": 7}, {"task-a": 2}], [9, 0, 0]),
        ([{"task-a": 7}, None], [7, None, None]),
        ([{f"task-{number}": 1 for number in range(MOST_LANES)}], [None, None, None]),
        ([None], [None, None, None]),
    ],
    ids=["all said", "two processes", "one older", "as many as are said", "older ones"],
)
def test_slots_are_those_that_processes_say(
    said: Sequence[dict[str, int] | None], slots: Sequence[int | None]
) -> None:
    processes = [process(lane_slots=one) for one in said]
    now = seen([task("a"), task("b"), task("c")], processes=processes)
    assert [one.slots for one in now.tasks] == slots


def test_of_tasks_that_share_a_lane_nobody_knows_the_slots() -> None:
    pooled = replace(task("a", Level.LOW), lane="pool-0")
    assert seen([pooled], processes=[process(lane_slots={"pool-0": 4})]).tasks[0].slots is None


def test_slots_at_a_later_sink_are_the_tasks_too() -> None:
    mail = replace(process(lane_slots={lane_at("a", "mail"): 2}).served[0], name="mail")
    both = replace(process(lane_slots={"task-a": 5}), serves=("default", "mail"))
    both = replace(both, served=(*both.served, mail))
    now = seen([task("a", sinks=("default", "mail"))], processes=[both])
    assert now.tasks[0].slots == 7


def test_paused_tasks_are_entitled_to_nothing() -> None:
    now = seen([task("a", state=State.PAUSED), task("b")])
    assert [one.entitled_per_s for one in now.tasks] == [0.0, pytest.approx(100.0)]


def test_ends_that_were_told_just_now_are_not_told_again() -> None:
    now = picture_of(
        [task("a")],
        Rates(),
        [SERVING],
        lambda **fields: SinkLoad(weights=Weights(6, 3, 1), now_ms=AT_MS, **fields),
        AT_MS,
        {"a": 5.0},
    )
    assert now.tasks[0].ends_at_ms == 5.0


def test_of_very_many_tasks_the_new_are_counted_and_the_others_in_turns() -> None:
    rates, ids = Rates(), [str(number) for number in range(2 * MOST_AT_ONCE + 7)]
    first = rates.to_count(ids)
    assert sorted(first) == sorted(ids)
    rates.take([Progress(one) for one in first], 0.0)
    asked = [rates.to_count(ids) for _ in range(3)]
    assert {len(some) for some in asked} == {MOST_AT_ONCE}
    assert {one for some in asked for one in some} == {*ids}


def test_a_task_that_is_gone_is_forgotten() -> None:
    rates = counted({"a": (0, 5), "b": (0, 5)})
    rates.keep_only({"b": None})
    assert rates.latest.keys() == {"b"}
    assert (rates.latest["b"].per_s, rates.latest["b"].over_s) == (2.5, 2.0)


PAUSED = {"a": 56_000, "b": None}
RESTS = Resting("sink default (open)", AT_MS - 5_000, "answers 503", AT_MS + 5_000)


@pytest.mark.parametrize(
    ("now", "text"),
    [
        (seen([]), "Nothing waits: no task runs."),
        (seen([task("a"), task("b")]), "How fast 2 tasks go is known from"),
        (
            seen([task("a")], counted({"a": (0, 0)}), [IDLE]),
            "1 task: what their sinks take is unknown yet.",
        ),
        (
            seen([task("a")], processes=[]),
            "1,000 pushes of 1 task wait: no dispatcher runs.",
        ),
        (
            seen([task("a", sinks=("mail",))]),
            "1,000 pushes wait at sink mail: nobody serves it.",
        ),
        (
            seen([task("a")], counted({"a": (0, 200)})),
            "All get their fair share: 1 task, 100 pushes/s; the last ends in 8 seconds.",
        ),
        (
            seen([task("a"), task("b")], counted({"a": (0, 100), "b": (0, 20)})),
            "b gets 10/s of its fair share of 50/s.",
        ),
        (
            seen([task("a")], limits={Subject("app", "shop"): Limit(rate_per_s=20)}),
            "shop is held by its limit of 20/s.",
        ),
        (
            seen([task("a", state=State.PAUSED)]),
            "No task runs: 1 is paused, with 1,000 pushes left.",
        ),
        (
            seen([task(one, state=State.PAUSED, total=total) for one, total in PAUSED.items()]),
            "No task runs: 2 are paused, with at least 56,000 pushes left.",
        ),
        (
            seen([task("a", state=State.PAUSED)], counted({"a": (1_000, 1_000)})),
            "Nothing waits: no task runs.",
        ),
        (
            seen([task("a", expires_at_ms=AT_MS + 6_000)]),
            "a is late: it expires at 00:16:46 UTC, before its end at 00:16:50 UTC: "
            "about 400 pushes will expire.",
        ),
        (
            seen([task("a", state=State.PAUSED, stopped=True, reason="104 of 104 died")]),
            "a is paused: 104 of 104 died.",
        ),
        (
            seen([task("a", name="sale", stalled_at_ms=5, total=None)]),
            "sale is stalled",
        ),
    ],
)
def test_the_verdict_names_what_is_in_the_way(now: Picture, text: str) -> None:
    assert said(now).startswith(text)


def test_a_sink_that_rests_comes_before_all_that_waits_for_it() -> None:
    now = seen([task("a")], processes=[process(resting=RESTS)])
    assert said(now).startswith("1,000 pushes wait at sink default: answers 503, since ")
    [first, *_] = held(now, now.tasks)
    assert (first.subject, first.since_ms) == ("sink/default", RESTS.since_ms)


def test_of_a_sink_that_rests_no_end_and_no_share_is_told_and_no_limit_is_in_the_way() -> None:
    limits = {Subject("app", "shop"): Limit(rate_per_s=5)}
    fast = {"delivered_per_s": {"high": 100.0}}
    rests = seen([task("a")], processes=[process(resting=RESTS, **fast)], limits=limits)
    goes = seen([task("a")], processes=[process(**fast)], limits=limits)
    reached = task("a", sinks=("default", "mail"), reached=("mail",))
    goes_on = seen([reached], processes=[process(**fast)])
    ends = [one.tasks[0].ends_at_ms is None for one in (rests, goes_on, goes)]
    assert ends == [True, True, False]
    entitled = [one.tasks[0].entitled_per_s for one in (rests, goes)]
    assert entitled == [None, 5]
    kinds = [[each.kind for each in held(one, one.tasks)] for one in (rests, goes)]
    assert kinds == [["rests"], ["limited"]]


def test_of_many_paused_tasks_a_hundred_are_known_and_five_shown() -> None:
    now = seen([task("a"), *(task(f"p{one}", state=State.PAUSED) for one in range(150))])
    holds = held(now, now.tasks)
    assert len(holds) == 100
    assert [one.subject for one in to_show(holds)] == [f"task/p{one}" for one in range(5)]


def test_what_was_submitted_paused_is_so_since_then() -> None:
    paused: dict[str, Any] = {"state": State.PAUSED, "created_at_ms": 5}
    now = seen([task("a", reason=PAUSED_AT_SUBMIT, **paused), task("b", reason="x", **paused)])
    assert [one.since_ms for one in held(now, now.tasks)] == [5, 0]


def test_a_paused_task_says_why_it_was_paused_and_not_what_died() -> None:
    paused: dict[str, Any] = {"state": State.PAUSED}
    rates = Rates()
    rates.take([Progress(one, delivered=1, dead=457) for one in "ab"], 0.0)
    now = seen([task("a", **paused), task("b", reason="the text is wrong", **paused)], rates)
    assert [one.why for one in held(now, now.tasks)] == ["paused", "paused: the text is wrong"]


def test_a_task_that_is_through_before_it_expires_or_about_then_is_not_late() -> None:
    soon, never = task("a", expires_at_ms=AT_MS + 19_900), task("b")
    now = seen([soon, never])
    assert [one.ends_at_ms for one in now.tasks] == [AT_MS + 20_000] * 2
    assert held(now, now.tasks) == []


def test_a_few_pushes_are_too_few_to_tell_that_a_task_gets_less() -> None:
    now = seen([task("a"), task("b")], counted({"a": (0, 25), "b": (0, 0)}, over_s=0.6))
    assert said(now).startswith("All get their fair share")


def test_what_a_limit_costs_is_told_by_what_lifting_it_would_do() -> None:
    limits = {Subject("app", "shop"): Limit(rate_per_s=10)}
    now = seen([task("a"), task("b", app="bank", total=100_000)], limits=limits)
    [sink] = now.sinks
    told = without(sink, Subject("app", "shop"), {"a", "b"}, {})
    # 1,000 at 50/s in place of 10/s; the 100,000 of the bank end when all is sent in both
    assert told == "Without it a ends 80 seconds sooner, nobody later."
    assert without(sink, Subject("app", "shop"), {"b"}, {}) == (
        "Without it no task would end sooner."
    )


def test_without_the_limit_that_holds_a_sink_down_its_slots_tell_what_it_takes() -> None:
    limits = {Subject("app", "shop"): Limit(rate_per_s=10)}
    slow = process(in_flight=1, delivered_per_s={"high": 10.0})
    [sink] = seen([task("a")], processes=[slow], limits=limits).sinks
    assert without(sink, Subject("app", "shop"), {"a"}, {}) == (
        "Without it a ends 90 seconds sooner, nobody later."
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 second"), (59, "59 seconds"), (840, "14 minutes"), (7_200, "2 hours")],
)
def test_lengths_are_in_one_unit(seconds: float, text: str) -> None:
    assert length(seconds) == text
