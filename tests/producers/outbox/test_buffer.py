"""When a producer's batches are cut: a push alone at once, and many together."""

from __future__ import annotations

from collections import deque

import pytest

from pushlane.producers.outbox.buffer import Buffer
from pushlane.producers.outbox.store import Batch, ProducerOptions

BATCH = 32


class CountingBroker:
    """Takes all that is due, by a clock that is set by hand; an answer takes `takes_s`."""

    def __init__(self, options: ProducerOptions | None = None, takes_s: float = 0.001) -> None:
        self.now_s = 100.0
        self.takes_s = takes_s
        self.batches: list[Batch] = []
        self.sent_at_s: list[float] = []
        self._answers: deque[tuple[float, int]] = deque()
        self.buffer = Buffer(
            options or ProducerOptions(), BATCH, 1, lambda: None, clock_s=lambda: self.now_s
        )

    def push(self) -> None:
        self.buffer.put(lambda seq, after_seq: b"x" * 150, 0.0)
        self._cut()

    def push_for(self, seconds: float, rate_per_s: int) -> None:
        began_s = self.now_s
        for number in range(1, round(seconds * rate_per_s) + 1):
            self.run_to(began_s + number / rate_per_s)
            self.push()

    def run_to(self, until_s: float) -> None:
        """Let the time pass, with all that comes due meanwhile."""
        while (next_s := self._next_s()) <= until_s:
            self.now_s = max(self.now_s, next_s)
            while self._answers and self._answers[0][0] <= self.now_s:
                self.buffer.landed(self._answers.popleft()[1])
            self._cut()
        self.now_s = until_s

    @property
    def sizes(self) -> list[int]:
        return [len(batch.bodies) for batch in self.batches]

    def _cut(self) -> None:
        if batches := self.buffer.cut():
            self.batches += batches
            self.sent_at_s += [self.now_s] * len(batches)
            self.buffer.release(batches)
            self._answers.append((self.now_s + self.takes_s, batches[-1].last_seq))

    def _next_s(self) -> float:
        due_in_s = self.buffer.due_in_s()
        answer_s = self._answers[0][0] if self._answers else float("inf")
        return answer_s if due_in_s is None else min(answer_s, self.now_s + due_in_s)


def test_a_push_alone_is_cut_at_once() -> None:
    broker = CountingBroker()

    broker.push()

    assert (broker.sizes, broker.sent_at_s) == ([1], [100.0])


def test_pushes_behind_it_wait_for_its_answer_and_go_together() -> None:
    broker = CountingBroker(takes_s=0.02)
    for _ in range(4):
        broker.push()

    broker.run_to(100.0199)
    assert broker.sizes == [1]
    broker.run_to(100.02)
    assert broker.sizes == [1, 3]


def test_without_an_answer_they_linger_as_long_as_ever() -> None:
    broker = CountingBroker(takes_s=1000.0)
    broker.push()
    broker.push()

    broker.run_to(100.0499)
    assert broker.sizes == [1]
    broker.run_to(100.0501)
    assert broker.sizes == [1, 1]


def test_small_batches_keep_five_milliseconds_apart() -> None:
    broker = CountingBroker(takes_s=0.0001)

    broker.push_for(1.0, rate_per_s=5_000)

    small = sum(size < BATCH and batch.last_seq % BATCH != 0 for size, batch in _both(broker))
    assert 100 <= small <= 200


def test_at_five_hundred_a_second_batches_hold_two_pushes_and_more() -> None:
    broker = CountingBroker()

    broker.push_for(2.0, rate_per_s=500)
    broker.run_to(broker.now_s + 1.0)

    assert sum(broker.sizes) == 1_000
    assert sum(broker.sizes) / len(broker.sizes) >= 2


def test_at_full_speed_batches_are_full() -> None:
    broker = CountingBroker(takes_s=0.002)

    broker.push_for(1.0, rate_per_s=150_000)

    full = sum(size == BATCH for size in broker.sizes)
    assert full >= 0.98 * len(broker.sizes)


def test_a_linger_that_was_asked_for_is_kept_though_nothing_is_on_its_way() -> None:
    broker = CountingBroker(ProducerOptions(linger_s=0.05))

    broker.push()
    broker.run_to(100.0499)
    assert broker.sizes == []
    broker.push()
    broker.run_to(100.0501)

    assert broker.sizes == [2]


def test_a_linger_of_nothing_sends_each_push() -> None:
    broker = CountingBroker(ProducerOptions(linger_s=0), takes_s=1000.0)

    for _ in range(3):
        broker.push()

    assert broker.sizes == [1, 1, 1]


def test_what_a_spool_had_before_is_on_its_way() -> None:
    buffer = Buffer(ProducerOptions(), BATCH, 11, lambda: None, acked_seq=4, clock_s=lambda: 100.0)
    buffer.put(lambda seq, after_seq: b"x", 0.0)

    assert buffer.due_in_s() == pytest.approx(0.05)
    buffer.landed(10)
    assert buffer.due_in_s() == 0.0


def _both(broker: CountingBroker) -> list[tuple[int, Batch]]:
    return list(zip(broker.sizes, broker.batches, strict=True))
