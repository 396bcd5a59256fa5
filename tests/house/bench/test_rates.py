"""What rates are judged by: marks of a count, and what pulsar-perf prints."""

from __future__ import annotations

from bench.counting import CountingSink, Mark, steady_rate
from bench.drained import Drained
from bench.rivals import steady_sum
from bench.throughput import judge
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

    result = judge_topics(ours, {64: 20.0}, None)

    assert (result["drop"], result["ratio_to_peer"], result["lost"]) == (0.1, {"64": 5.0}, 1)
