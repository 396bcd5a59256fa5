"""What waits for a collector is bounded, counted when it is dropped, and holds up nobody."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from pushlane.dispatcher.tracing.exporter import MOST_AT_ONCE, THREAD, Pending, SpanQueue
from tests.processes import until

WAIT_S = 60.0


class Exporter:
    """Answers as it is told, once it may."""

    def __init__(self, answer: Callable[[], str] = lambda: "SUCCESS") -> None:
        self.answer = answer
        self.may_go = threading.Event()
        self.has_begun = threading.Event()
        self.taken: list[Any] = []
        self.is_shut = False

    def export(self, spans: Any) -> SimpleNamespace:
        self.has_begun.set()
        self.may_go.wait(WAIT_S)
        name = self.answer()
        self.taken += spans
        return SimpleNamespace(name=name)

    def shutdown(self) -> None:
        self.is_shut = True


def single(spans: Iterable[Any]) -> Iterator[Pending]:
    """Have each made by itself."""
    return (Pending(1, lambda span=span: [span]) for span in spans)  # type: ignore[misc]


@pytest.fixture
def hanging() -> Iterator[Exporter]:
    exporter = Exporter()
    yield exporter
    exporter.may_go.set()


def test_what_waits_is_exported_at_a_stop() -> None:
    exporter = Exporter()
    exporter.may_go.set()
    queue = SpanQueue(exporter)
    queue.put(single(range(3)))
    queue.put(single(range(3, 2_000)))
    queue.stop(WAIT_S)

    assert exporter.taken == list(range(2_000))
    assert exporter.is_shut
    assert queue.dropped == 0


def test_an_exporter_that_hangs_costs_spans_and_nothing_else(hanging: Exporter) -> None:
    queue = SpanQueue(hanging, most=1_000)
    queue.put(single(range(MOST_AT_ONCE)))
    assert hanging.has_begun.wait(WAIT_S)
    for number in range(20):
        queue.put(single([number] * 100))  # the first ten fill it

    assert queue.dropped == 1_000
    queue.stop(0.01)
    assert queue.dropped == 1_000 + 1_000 + MOST_AT_ONCE
    queue.put(single([1]))
    assert queue.dropped == 1_000 + 1_000 + MOST_AT_ONCE + 1


def failing() -> str:
    raise OSError("no route")


@pytest.mark.parametrize("answer", [lambda: "FAILURE", failing])
def test_what_a_collector_refuses_is_counted_and_told_once(
    answer: Callable[[], str], caplog: pytest.LogCaptureFixture
) -> None:
    exporter = Exporter(answer)
    exporter.may_go.set()
    queue = SpanQueue(exporter)
    with caplog.at_level(logging.WARNING, "pushlane.tracing"):
        queue.put(single(range(MOST_AT_ONCE)))
        until(lambda: queue.dropped == MOST_AT_ONCE)
        queue.put(single([1]))
        queue.stop(WAIT_S)

    assert queue.dropped == MOST_AT_ONCE + 1
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2  # and at the stop


def test_no_thread_begins_before_a_span() -> None:
    before = threading.active_count()
    queue = SpanQueue(Exporter())

    assert threading.active_count() == before
    queue.stop()


def test_what_is_dropped_is_never_made_and_what_waits_is_made_by_its_thread(
    hanging: Exporter,
) -> None:
    made: list[tuple[int, str]] = []

    def make(number: int) -> list[int]:
        made.append((number, threading.current_thread().name))
        return [number] * 3

    queue = SpanQueue(hanging, most=6)
    queue.put(Pending(3, partial(make, number)) for number in range(4))
    assert queue.dropped == 6
    hanging.may_go.set()
    queue.stop(WAIT_S)

    assert made == [(0, THREAD), (1, THREAD)]
    assert hanging.taken == [0, 0, 0, 1, 1, 1]


def test_spans_that_cannot_be_made_are_counted_and_the_next_ones_go() -> None:
    exporter = Exporter()
    exporter.may_go.set()
    queue = SpanQueue(exporter)
    queue.put(Pending(1, failing) for _ in range(MOST_AT_ONCE))  # type: ignore[arg-type]
    until(lambda: queue.dropped == MOST_AT_ONCE)
    queue.put(single([7]))
    queue.stop(WAIT_S)

    assert exporter.taken == [7]
    assert queue.dropped == MOST_AT_ONCE
