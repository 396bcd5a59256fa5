"""The leader's figures: how long a backlog takes, who is entitled to what, and what has a name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pushlane.core.names import own_lane
from pushlane.core.task import Level, State, Task, Weights
from pushlane.dispatcher.leader.backlogs import TaskBacklog
from pushlane.dispatcher.leader.survey import LONGEST_S, Summary, SurveyInput, summarized
from pushlane.model.limits import Limit, Limits, Subject
from pushlane.model.presence import Process, Resting, ServedSink, SinkDrain

NOW_MS = 1_790_000_000_000
TARGET_S = 300.0
SINK = Subject("sink", "fcm")


def left_of(
    left: int, task_id: str = "t", level: Level = Level.HIGH, later: int = 0, **fields: Any
) -> TaskBacklog:
    """What is left at the sink `fcm` of a running task, submitted a minute ago."""
    default = {"lane": own_lane(task_id), "state": State.RUNNING, "sinks": ("fcm",)}
    task = Task(id=task_id, level=level, **{**default, **fields})
    return TaskBacklog(task, task.chain[0], left, later, NOW_MS - 60_000)


def stand_of(per_s: float = 0.0, **fields: Any) -> ServedSink:
    """The sink `fcm` with ten slots, at which so many pushes end a second."""
    return ServedSink(**{"name": "fcm", "slots": 10, "ended_per_s": per_s, **fields})


def process_of(*stands: ServedSink) -> Process:
    names = tuple(one.name for one in stands)
    return Process(
        id="d", kind="dispatcher", pid=7, version="1", sinks=names, serves=names, served=stands
    )


def summary_of(
    backlogs: Sequence[TaskBacklog],
    *stands: ServedSink,
    limits: Limits | None = None,
    busy_since_ms: Mapping[str, int] | None = None,
    spent: Mapping[Subject, Mapping[str, float]] | None = None,
) -> Summary:
    """What is known of processes of a sink each, which has been busy for longer than a minute."""
    return summarized(
        SurveyInput(
            backlogs=backlogs,
            processes=[process_of(one) for one in stands],
            weights=Weights(),
            limits=limits or {},
            spent=spent or {},
            target_s=TARGET_S,
            now_ms=NOW_MS,
            busy_since_ms={"fcm": 0} if busy_since_ms is None else busy_since_ms,
        )
    )


def drain_of(*given: Any, **more: Any) -> SinkDrain:
    return summary_of(*given, **more).drain.by_sink["fcm"]


def replicas(present: int, seconds: float) -> int:
    """What an autoscaler of Kubernetes makes of the figure."""
    return math.ceil(present * seconds / TARGET_S)


class TestSecondsToDrain:
    def test_they_are_the_backlog_by_the_rate_of_all_processes(self) -> None:
        assert drain_of([left_of(9_000)], stand_of(10), stand_of(20)) == SinkDrain(
            seconds=300.0, backlog=9_000, rate_per_s=30.0
        )

    @pytest.mark.parametrize(
        "waiting",
        [
            left_of(5_000, "p", state=State.PAUSED),
            left_of(5_000, "s", not_before_ms=NOW_MS + 1),
            left_of(5_000, "l", later=5_000),
            left_of(5_000, "q", quiet="00:00-23:59"),
        ],
    )
    def test_what_may_not_go_now_is_left_and_not_counted(self, waiting: TaskBacklog) -> None:
        summary = summary_of([left_of(600), waiting], stand_of(10))

        assert summary.drain.seconds == 60
        assert summary.figures.backlog["high", "fcm"] == 5_600

    def test_a_backlog_that_has_just_come_goes_as_fast_as_the_slots_promise(self) -> None:
        """A minute with hardly anything to send tells nothing."""
        given = [left_of(6_000)], stand_of(0.1, delivery_s=0.1)

        assert drain_of(*given, busy_since_ms={}).seconds == 60
        assert drain_of(*given, busy_since_ms={"fcm": NOW_MS - 59_000}).seconds == 60
        assert drain_of(*given, busy_since_ms={"fcm": NOW_MS - 60_000}).seconds == 60_000

    def test_a_sink_that_has_ended_nothing_for_a_minute_is_taken_at_its_promise(self) -> None:
        assert drain_of([left_of(6_000)], stand_of(0, delivery_s=0.1)).rate_per_s == 100

    def test_what_nobody_can_tell_is_the_target_so_that_nothing_is_scaled(self) -> None:
        assert drain_of([left_of(1)], stand_of()).seconds == TARGET_S
        assert drain_of([left_of(1)]).seconds == TARGET_S  # nobody serves it

    def test_nothing_left_takes_no_time(self) -> None:
        assert drain_of([left_of(0)], stand_of()).seconds == 0
        assert drain_of([], stand_of(5)) == SinkDrain(seconds=0.0, backlog=0, rate_per_s=5.0)

    def test_a_sink_that_rests_everywhere_needs_no_more_processes(self) -> None:
        resting = Resting("sink fcm (open)", 1, "refused", 2)

        assert drain_of([left_of(9_000)], stand_of(10, resting=resting)).seconds == 0
        assert drain_of([left_of(9_000)], stand_of(10, resting=resting), stand_of(20)).seconds > 0

    def test_one_that_takes_little_keeps_as_many_as_there_are(self) -> None:
        resting = Resting("sink fcm (throttled)", 1, "429", 0)
        drain = drain_of([left_of(90_000)], stand_of(10, resting=resting))

        assert replicas(3, drain.seconds) == 3

    @pytest.mark.parametrize("subject", [SINK, Subject("app", "shop"), Subject("task", "t")])
    @pytest.mark.parametrize(("pods", "wanted"), [(1, 5), (2, 5), (5, 5), (10, 5)])
    def test_a_limit_asks_for_as_many_as_reach_it(
        self, subject: Subject, pods: int, wanted: int
    ) -> None:
        """Each process sends 100/s, the limit is 500/s: five are enough, however much is left."""
        stands = [stand_of(min(100, 500 / pods)) for _ in range(pods)]
        limits = {subject: Limit(rate_per_s=500)}
        drain = drain_of([left_of(10**7, app="shop")], *stands, limits=limits)

        assert replicas(pods, drain.seconds) == (wanted if pods < wanted else pods)

    def test_what_has_used_up_a_total_does_not_count(self) -> None:
        app = Subject("app", "shop")
        given: Any = {"limits": {app: Limit(a_day=100)}, "spent": {app: {"a_day": 100.0}}}
        tasks = [left_of(500, app="shop"), left_of(100, "n", app="news")]

        assert drain_of(tasks, stand_of(10), **given).backlog == 100
        given["spent"][app]["a_day"] = 99.0
        assert drain_of(tasks, stand_of(10), **given).backlog == 600

    def test_those_of_an_app_share_its_limit(self) -> None:
        tasks = [left_of(10**6, str(number), app="shop") for number in range(10)]
        limits = {Subject("app", "shop"): Limit(rate_per_s=1)}

        assert drain_of(tasks, stand_of(10), limits=limits).backlog == TARGET_S

    def test_all_sinks_together_take_as_long_as_the_slowest(self) -> None:
        slow = left_of(1_000, "s", sinks=("apns",))
        processes = stand_of(10), stand_of(5, name="apns")
        drain = summary_of([left_of(100), slow], *processes, busy_since_ms={"apns": 0}).drain

        assert (drain.seconds, drain.backlog, drain.rate_per_s) == (200, 1_100, 15)

    @given(
        left=st.integers(0, 10**12),
        rates=st.lists(st.floats(0, 1e9), max_size=4),
        delivery_s=st.floats(0, 1e6),
        limit=st.none() | st.floats(1e-6, 1e9),
        busy_ms=st.integers(0, 120_000),
    )
    @example(left=1, rates=[0.0], delivery_s=1e-313, limit=None, busy_ms=0)
    def test_they_are_finite_and_zero_only_when_nothing_waits(
        self,
        left: int,
        rates: list[float],
        delivery_s: float,
        limit: float | None,
        busy_ms: int,
    ) -> None:
        stands = [stand_of(rate, delivery_s=delivery_s) for rate in rates]
        summary = summary_of(
            [left_of(left)],
            *stands,
            limits={SINK: Limit(rate_per_s=limit)},
            busy_since_ms={"fcm": NOW_MS - busy_ms},
        )

        for one in summary.drain.by_sink.values():
            assert 0 <= one.seconds <= max(LONGEST_S, TARGET_S)
            assert math.isfinite(one.rate_per_s)
            assert 0 <= one.backlog <= left


class TestShares:
    def test_levels_with_something_to_send_share_by_their_weights(self) -> None:
        tasks = [left_of(10, "h"), left_of(10, "l", Level.LOW), left_of(0, "m", Level.MEDIUM)]
        figures = summary_of(tasks, stand_of(10)).figures

        assert figures.entitled == {
            ("high", "fcm"): pytest.approx(6 / 7),
            ("medium", "fcm"): 0,
            ("low", "fcm"): pytest.approx(1 / 7),
        }

    def test_what_was_sent_is_added_up_over_all_processes(self) -> None:
        stands = stand_of(sent_per_s={"high": 50.0, "low": 5.0}), stand_of(sent_per_s={"low": 45.0})
        figures = summary_of([], *stands).figures

        assert figures.observed == {
            ("high", "fcm"): 0.5,
            ("medium", "fcm"): 0,
            ("low", "fcm"): 0.5,
        }
        assert figures.rate_per_s["low", "fcm"] == 50

    def test_apps_share_a_level_by_their_quotas(self) -> None:
        tasks = [left_of(10, "a", app="shop"), left_of(10, "b", app="news")]
        limits = {Subject("app", "shop"): Limit(quota=3)}
        stand = stand_of(10, sent_per_s={"high": 40.0}, apps_per_s={"shop": 30.0, "news": 10.0})
        figures = summary_of(tasks, stand, limits=limits).figures

        assert figures.app_entitled == {("shop", "fcm"): 0.75, ("news", "fcm"): 0.25}
        assert figures.app_observed == figures.app_entitled

    def test_apps_on_a_shared_lane_have_what_is_left_of_them(self) -> None:
        pool = {"level": Level.LOW, "lane": "pool-0"}
        tasks = [left_of(30, "a", app="shop", **pool), left_of(10, "b", app="news", **pool)]
        figures = summary_of(tasks, stand_of(10)).figures

        assert figures.app_entitled == {("shop", "fcm"): 0.75, ("news", "fcm"): 0.25}

    def test_nobody_is_entitled_to_a_sink_that_rests(self) -> None:
        resting = Resting("sink fcm (probing)", 1, "refused", 0)
        figures = summary_of([left_of(10)], stand_of(resting=resting)).figures

        assert set(figures.entitled.values()) == {0}

    @given(st.lists(st.tuples(st.sampled_from(Level), st.integers(0, 100)), min_size=1))
    def test_they_add_up_to_one_while_anything_may_go(self, tasks: list[tuple[Level, int]]) -> None:
        backlogs = [left_of(left, f"{n}", level) for n, (level, left) in enumerate(tasks)]
        figures = summary_of(backlogs, stand_of(10)).figures
        whole = 1.0 if any(left for _, left in tasks) else 0.0

        assert sum(figures.entitled.values()) == pytest.approx(whole)
        assert sum(figures.app_entitled.values()) == pytest.approx(whole)


class TestAges:
    def test_the_oldest_of_a_level_counts_while_it_may_go(self) -> None:
        old = left_of(1, "old")._replace(since_ms=NOW_MS - 5_000_000)
        paused = left_of(1, "paused", state=State.PAUSED)._replace(since_ms=0)
        figures = summary_of([left_of(1), old, paused, left_of(0, "e", Level.LOW)]).figures

        assert figures.oldest_age_s["high", "fcm"] == 5_000
        assert figures.oldest_age_s["low", "fcm"] == 0

    @pytest.mark.parametrize(
        ("per_s", "age_s"),
        # It has never been seen empty, but what is there is young; it has stood still since then.
        [(100.0, 0.2), (0.0, 5_000)],
    )
    def test_a_stream_that_is_sent_as_it_comes_is_not_old(self, per_s: float, age_s: float) -> None:
        stream = left_of(20, is_fed=True)._replace(since_ms=NOW_MS - 5_000_000)
        stand = stand_of(per_s, sent_per_s={"high": per_s})
        figures = summary_of([stream], stand).figures

        assert figures.oldest_age_s["high", "fcm"] == pytest.approx(age_s)

    def test_the_rate_of_others_makes_no_sealed_task_younger(self) -> None:
        stands_still = left_of(1)._replace(since_ms=NOW_MS - 5_000_000)
        figures = summary_of([stands_still], stand_of(100, sent_per_s={"high": 100})).figures

        assert figures.oldest_age_s["high", "fcm"] == 5_000

    def test_what_is_held_has_an_age_of_its_own_so_that_an_outage_is_no_flat_line(self) -> None:
        shut = Resting("sink fcm (open)", NOW_MS - 30_000, "no connection", NOW_MS + 1_000)

        figures = summary_of([left_of(5_000)], stand_of(resting=shut)).figures

        assert figures.oldest_age_s["high", "fcm"] == 0
        assert figures.unsent_oldest_age_s["high", "fcm"] == 60
        assert figures.backlog["high", "fcm"] == 5_000

    def test_what_waits_for_its_time_is_counted_apart(self) -> None:
        given = [left_of(5_000, later=1_673), left_of(10, "u", later=40)]

        figures = summary_of(given, stand_of(10)).figures

        assert figures.waiting_backlog["high", "fcm"] == 1_673 + 10
        assert figures.backlog["high", "fcm"] == 5_010


class TestNames:
    def test_of_very_many_only_the_ten_largest_have_one(self) -> None:
        tasks = [left_of(number + 1, f"t{number}", app=f"a{number}") for number in range(10_000)]
        rates = {f"b{number}": 1.0 for number in range(20)}
        figures = summary_of(tasks, stand_of(10, apps_per_s=rates)).figures

        named = {task for task, _, _ in figures.task_backlog}
        assert named == {f"t{number}" for number in range(9_990, 10_000)}
        for by_app in (
            figures.app_backlog,
            figures.app_rate_per_s,
            figures.app_entitled,
            figures.app_observed,
        ):
            assert {app for app, _ in by_app} == {f"a{n}" for n in range(9_990, 10_000)}
        assert figures.backlog["high", "fcm"] == 10_000 * 10_001 / 2

    def test_one_with_nothing_left_has_none_any_more(self) -> None:
        assert summary_of([left_of(0)], stand_of()).figures.task_backlog == {}

    def test_the_sink_of_an_older_process_that_gives_its_kind_is_default_too(self) -> None:
        process = Process(
            id="d",
            kind="dispatcher",
            pid=7,
            version="1",
            sinks=("webhook",),
            serves=("default",),
            served=(ServedSink(name="default"),),
        )
        summary = summarized(
            SurveyInput(
                backlogs=[left_of(3, sinks=())],
                processes=[process],
                weights=Weights(),
                limits={},
                target_s=TARGET_S,
                now_ms=NOW_MS,
                busy_since_ms={},
            )
        )

        assert summary.figures.backlog["high", "default"] == 3
        assert set(summary.drain.by_sink) == {"default"}
