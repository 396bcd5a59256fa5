"""Pushes of a producer in a dispatcher: in the order of their keys, at their time, the newest."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pushlane.backends.backend import Backend, connect
from pushlane.core.errors import Unreachable
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Outcome
from pushlane.core.task import Level, Progress, now_ms
from pushlane.producers.outbox.store import ProducerOptions
from pushlane.producers.producer import Producer
from pushlane.settings import Settings
from tests.core.support import MemorySink, Wrapped, drain, settings_in


def busy_at_first(delivery: Delivery) -> Outcome:
    push = delivery.push
    return Outcome.retry("busy", 0.2) if (push.seq, push.attempt) == (1, 1) else DELIVERED


async def delivered_by(settings: Settings, sink: MemorySink, task_id: str) -> Progress:
    async with connect(settings) as backend:
        await drain(backend, sink, settings)
        [progress] = await backend.registry.progress([task_id])
        return progress


def seqs(sink: MemorySink) -> list[int]:
    return [delivery.push.seq for delivery in sink.received]


@pytest.mark.parametrize("level", [Level.HIGH, Level.LOW])
async def test_a_push_waits_for_the_one_before_it_that_is_retried(tmp_path: Path, level) -> None:
    settings = settings_in(tmp_path)
    async with Producer("orders", level=level, ordered=True, settings=settings) as producer:
        await producer.apush("ada", title="Paid", ordered_by="account-7")
        await producer.apush("ada", title="Sent", ordered_by="account-7")
        await producer.apush("bob", title="Paid", ordered_by="account-8")
        await producer.apush("eve", title="Hello")
    sink = MemorySink(busy_at_first)

    progress = await delivered_by(settings, sink, producer.task_id)

    assert [seq for seq in seqs(sink) if seq in (1, 2)] == [1, 1, 2]
    assert max(map(seqs(sink).index, (3, 4))) < seqs(sink).index(2)
    assert progress.delivered == 4


async def test_so_does_one_of_the_next_producer_of_the_spool(tmp_path: Path) -> None:
    settings = settings_in(tmp_path / "store")
    for title in ("Paid", "Sent", "There"):
        async with Producer(
            "orders", ordered=True, spool=tmp_path / "spool", settings=settings
        ) as producer:
            await producer.apush("ada", title=title, ordered_by="account-7")
    sink = MemorySink(busy_at_first)

    await delivered_by(settings, sink, producer.task_id)

    assert seqs(sink) == [1, 1, 2, 3]
    assert [one.push.title for one in sink.received] == ["Paid", "Paid", "Sent", "There"]


async def test_a_push_with_a_delay_comes_after_those_that_have_none(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    async with Producer("orders", settings=settings) as producer:
        start_ms = now_ms() + 300
        await producer.apush("ada", title="Later", not_before_ms=start_ms)
        await producer.apush("ada", title="Now")
    late: list[bool] = []

    def answer(delivery: Delivery) -> Outcome:
        late.append(now_ms() >= start_ms or delivery.push.title == "Now")
        return DELIVERED

    sink = MemorySink(answer)

    await delivered_by(settings, sink, producer.task_id)

    assert seqs(sink) == [2, 1]
    assert late == [True, True]


async def test_a_push_is_dead_after_the_attempts_of_its_producer(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    async with Producer("orders", max_attempts=2, settings=settings) as producer:
        await producer.apush("ada", title="Paid")
    sink = MemorySink(lambda _: Outcome.retry("busy", 0.01))

    progress = await delivered_by(settings, sink, producer.task_id)

    assert seqs(sink) == [1, 1]
    assert progress.dead == 1


SINGLY = ProducerOptions(max_batch=1, linger_s=0.0)


async def push_scores(settings: Settings, **options: Any) -> Producer:
    async with Producer("scores", settings=settings, options=SINGLY, **options) as producer:
        for title in ("0:1", "1:1", "2:1"):
            await producer.apush("ada", title=title, collapse="score-7")
        await producer.apush("bob", title="2:1", collapse="score-7")
        await producer.apush("ada", title="Paid")
    return producer


async def test_of_pushes_that_collapse_the_newest_that_waits_is_sent(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    producer = await push_scores(settings)
    sink = MemorySink()

    progress = await delivered_by(settings, sink, producer.task_id)

    assert sorted(seqs(sink)) == [3, 4, 5]
    assert (progress.delivered, progress.dropped) == (3, 2)


class FailsOnce(Wrapped):
    """Windows of recipients that hear of nothing the first time; `announced` counts the marks."""

    def __init__(self, real: Any) -> None:
        super().__init__(real)
        self.announced = 0
        self.has_failed = False

    async def announce(self, marks: Any) -> None:
        if not self.has_failed:
            self.has_failed = True
            raise Unreachable("no answer from Redis")
        self.announced += len(marks)
        await self._real.announce(marks)


async def test_what_was_in_the_spool_collapses_too_and_is_announced_when_the_store_is_back(
    tmp_path: Path,
) -> None:
    settings, spool = settings_in(tmp_path / "store"), tmp_path / "spool"

    @asynccontextmanager
    async def away(_: Settings) -> AsyncIterator[Backend]:
        raise Unreachable("no answer")
        yield

    first = Producer("scores", settings=settings, options=SINGLY, spool=spool, connect=away).open()
    for title in ("0:1", "1:1"):
        first.push("ada", title=title, collapse="score-7")
    first.close(timeout_s=0.0)
    windows: list[FailsOnce] = []

    @asynccontextmanager
    async def failing(given: Settings) -> AsyncIterator[Backend]:
        async with connect(given) as backend:
            windows.append(FailsOnce(backend.recipient_windows))
            yield replace(backend, recipient_windows=windows[-1])

    options: dict[str, Any] = {"options": SINGLY, "spool": spool, "connect": failing}
    async with Producer("scores", settings=settings, **options) as second:
        assert second.task_id == first.task_id
        assert await second.aflush()
    sink = MemorySink()

    await delivered_by(settings, sink, second.task_id)

    assert seqs(sink) == [2]
    assert windows[0].announced == 2
