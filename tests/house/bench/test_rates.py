"""What rates are judged by: marks of a count, and what pulsar-perf prints."""

from __future__ import annotations

from bench.counting import CountingSink, Mark, steady_rate
from bench.drained import Drained
from bench.figures import at_most, markdown
from bench.rivals import steady_sum
from bench.throughput import judge
from bench.topics import figures as topics_figures
from bench.topics import judge as judge_topics
from pushlane.core.ports import Delivery
from pushlane.core.push import Push
from pushlane.core.task import Level

MARKS = [Mark(at_s, count) for at_s, count in ((0.0, 10), (1.0, 20), (2.0, 40), (9.0, 50))]


async def deliver(sink: CountingSink, *pushes: tuple[str, int]) -> None:
    batch = [Delivery(Push(task, seq, "r"), Level.HIGH) for task, seq in pushes]
    await sink.deliver(batch)


def test_a_rate_is_of_the_steady_part() -> None:
    assert steady_rate(MARKS, 10, 45) == 15.0


def test_a_part_with_less_than_two_marks_has_no_rate() -> None:
    assert steady_rate(MARKS, 45, 50) == 0.0


async def test_what_never_came_is_lost_though_another_came_twice() -> None:
    sink = CountingSink({"a": 2, "b": 1})
    await deliver(sink, ("a", 1), ("b", 1), ("a", 1))

    assert sink.lost() == [("a", 2)]
    assert sink.duplicates == 1


async def test_it_knows_when_every_task_was_seen() -> None:
    sink = CountingSink({"a": 2, "b": 1})
    await deliver(sink, ("a", 1), ("a", 2))
    assert sink.all_seen_at == 0

    await deliver(sink, ("b", 1))
    assert sink.all_seen_at == 2


def test_the_rates_of_topics_add_up_without_their_first_and_last_seconds() -> None:
    lines = [
        f"… [persistent://t/n/{topic}] [perf] … Consume throughput received: {rate:.2f} msgs/s …"
        for topic in ("a", "b")
        for rate in (1, 1, 100, 120, 7)
    ]

    assert steady_sum([*lines, "something else"]) == 220.0


def test_a_ratio_is_of_the_rounds_in_which_the_rival_ran() -> None:
    ours = [Drained(rate, 10.0, 0, 0) for rate in (60, 80, 70)]
    missing = "not installed: no Java"
    rivals = [{"pulsar_perf": rate} for rate in (100.0, missing, 100.0)]

    result = judge(ours, rivals)

    assert (result["rate"], result["ratio_to_perf"]) == (70, 0.7)


def test_a_rival_that_never_ran_says_why() -> None:
    missing = "not installed: no Java"
    result = judge([Drained(60, 10.0, 0, 0)], [{"pulsar_perf": missing}])

    assert (result["pulsar_perf_rate"], result["ratio_to_perf"]) == (missing, None)


def test_the_drop_is_from_the_fewest_lanes_to_the_most() -> None:
    ours = {64: Drained(100, 10.0, 0, 0), 4_096: Drained(90, 12.0, 1, 0)}

    result = judge_topics(ours, {64: 20.0}, None, {})

    assert (result["drop"], result["ratio_to_peer"], result["lost"]) == (0.1, {"64": 5.0}, 1)


def test_a_run_in_both_series_is_counted_once() -> None:
    few = Drained(100, 10.0, 0, 2)
    ours = {64: few, 4_096: Drained(40, 30.0, 1, 0)}

    result = judge_topics(ours, {}, None, {64: few, 4_096: Drained(60, 20.0, 4, 0)})

    assert (result["drop"], result["deep_drop"]) == (0.6, 0.4)
    assert (result["lost"], result["duplicates"]) == (5, 2)


def test_lanes_are_named_by_their_pushes_and_shown_once() -> None:
    few = Drained(100, 10.0, 0, 0)
    ours = {64: few, 4_096: Drained(40, 30.0, 0, 0)}
    deep = {64: few, 4_096: Drained(60, 20.0, 0, 0)}
    head = {"broker": "embedded", "pushes": 262_144, "a_lane": 512}

    shown = topics_figures(head | judge_topics(ours, {}, None, deep))

    assert [(one.name, one.measured) for one in shown[:5]] == [
        ("pushes a second, 64 lanes of 4,096", "100, 10 us"),
        ("pushes a second, 4,096 lanes of 64", "40, 30 us"),
        ("drop from 64 to 4,096 lanes, 262,144 pushes in all", "0.6"),
        ("pushes a second, 4,096 lanes of 512", "60, 20 us"),
        ("drop from 64 to 4,096 lanes, 512 pushes a lane or more", "0.4"),
    ]


def test_goals_that_differ_from_run_to_run_are_all_shown() -> None:
    table = markdown({"a": [at_most("drop", 0.2, 0.1)], "b": [at_most("drop", 0.2, 0.25)]})

    assert table.splitlines()[-1] == "| drop | 0.2 (missed) | 0.2 | ≤ 0.1; ≤ 0.25 |"
