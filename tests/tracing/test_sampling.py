"""Who is sampled, and the ids of spans: every process finds them alike, by the push alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlane.core.push import Push
from pushlane.dispatcher.tracing.conventions import SpanOperation
from pushlane.dispatcher.tracing.sampling import Sampler, attempt_id, span_id
from pushlane.util.trace_context import TraceContext, read_traceparent, trace_hash

TRACE, SPAN = "a" * 32, "b" * 16


def push(seq: int = 1, task: str = "task", **fields: object) -> Push:
    return Push(task, seq, "somebody", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", ["00", "01"])
def test_a_traceparent_is_read(version: str) -> None:
    found = read_traceparent(f"{version}-{TRACE}-{SPAN}-01")

    assert found == TraceContext(int(TRACE, 16), int(SPAN, 16), True)
    assert found.traceparent == f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "order 7",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE}-{SPAN}-01-more",
    ],
)
def test_a_traceparent_that_is_none_is_none(text: str) -> None:
    assert read_traceparent(text) is None


def test_a_callers_flag_wins_over_the_rate() -> None:
    sampled, not_sampled = (push(trace_id=f"00-{TRACE}-{SPAN}-0{flag}") for flag in (1, 0))

    assert Sampler(0.0).context(sampled) == TraceContext(int(TRACE, 16), int(SPAN, 16), True)
    assert Sampler(1.0).context(not_sampled) == TraceContext(int(TRACE, 16), int(SPAN, 16), False)


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.5, 1.0])
def test_the_rate_holds_within_a_task_and_over_tasks(rate: float) -> None:
    sampler = Sampler(rate)
    in_one = [sampler.context(push(seq)) for seq in range(1, 10_001)]
    of_many = [sampler.context(push(1, f"task-{number}")) for number in range(10_000)]

    assert sum(one.is_sampled for one in in_one) == pytest.approx(10_000 * rate, abs=10)
    assert sum(one.is_sampled for one in of_many) == pytest.approx(10_000 * rate, abs=250)


def test_every_process_decides_alike_and_a_higher_rate_has_those_of_a_lower_one() -> None:
    pushes = [push(seq, trace_id="order 7") for seq in range(1, 1_001)]
    low, again, high = (dict(Sampler(rate).sampled(pushes)) for rate in (0.1, 0.1, 0.3))

    assert low == again
    assert low.items() < high.items()


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.1, 0.3, 1.0])
@pytest.mark.parametrize(
    "more",
    [
        [],
        [push(seq, name) for name in ("other", "third") for seq in range(300)],
        [push(seq) for seq in range(4_000, 4_200)],
        [push(seq) for seq in range(4_000, 8_200)],
        [push(5, "other")],
        [push(5, trace_id=f"00-{TRACE}-{SPAN}-01"), push(6, trace_id="order 7")],
        [push(2**62), push(0), push(-1)],
    ],
)
def test_those_of_a_batch_are_those_that_are_sampled_alone(rate: float, more: list[Push]) -> None:
    batch = [*map(push, range(1, 100)), *more]
    alone = [(row, Sampler(rate).context(one)) for row, one in enumerate(batch)]

    assert Sampler(rate).sampled(batch) == [one for one in alone if one[1].is_sampled]


@given(
    rate=st.floats(0, 1),
    first=st.integers(0, 10_000),
    task=st.text("ab", min_size=1, max_size=4),
)
def test_those_of_a_stretch_of_a_task_are_those_that_are_sampled_alone(
    rate: float, first: int, task: str
) -> None:
    sampler = Sampler(rate)
    batch = [push(seq, task) for seq in range(first, first + 300)]

    for _ in range(2):  # with what it keeps of the first time, too
        found = sampler.sampled(batch)
        assert found == [(r, c) for r, one in enumerate(batch) if (c := sampler.context(one))[2]]


def test_spans_have_ids_of_their_own_that_can_be_computed_again() -> None:
    trace_id = int(TRACE, 16)
    attempts = [push(), push(2), push(attempt=2), push(due_at_ms=5), push(attempt=2, due_at_ms=5)]
    keys = [
        (what, one.push_id, attempt_id(one, sink))
        for what in SpanOperation
        for one in attempts
        for sink in ("a", "b")
    ]
    found = {span_id(trace_id, *key) for key in keys if key[0] is not SpanOperation.CREATE}
    created = {span_id(trace_id, *key) for key in keys if key[0] is SpanOperation.CREATE}

    assert len(found) == 2 * len(attempts) * 2
    assert len(created) == 2  # one for each push, whatever the attempt
    assert span_id(trace_id, *keys[-1]) in found
    assert span_id(trace_id + 1, *keys[-1]) not in found


def test_all_traceparents_of_a_trace_have_the_hash_of_its_id():
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    texts = [trace_id, f"00-{trace_id}-00f067aa0ba902b7-01", f"00-{trace_id}-{1:016x}-00"]

    assert {trace_hash(text) for text in texts} == {0x398ACAEE65C4E533}
    assert trace_hash("") == 0
    assert trace_hash("t-9") not in (0, trace_hash("t-8"))
