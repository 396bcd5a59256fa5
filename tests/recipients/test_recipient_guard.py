"""Dedupe and collapse in a dispatcher: what a recipient gets, and what is dropped."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from pushlane.backends.backend import Backend
from pushlane.core.errors import Unreachable
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Outcome, Push, encode
from pushlane.core.task import Level, Task
from pushlane.model import task_changes
from pushlane.model.recipients import collapse_mark
from tests.core.support import (
    MemorySink,
    Wrapped,
    add_task,
    backend_in,
    dispatching,
    drain,
)


@pytest.fixture(autouse=True)
def _looks_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pushlane.dispatcher.guards.recipient_guard._BUSY_AGAIN_S", 0.05)


async def add(
    backend: Backend, *recipients: str, at_ms: int = 1, announce: bool = True, **fields: object
) -> Task:
    """A task with a push to each, of collapse key `score` unless it is deduped."""
    task = await add_task(backend, pushes=0, seal=False, **fields)
    key = "" if task.dedupe else "score"
    pushes = [
        Push(task.id, seq, to, submitted_at_ms=at_ms, collapse=key)
        for seq, to in enumerate(recipients, start=1)
    ]
    await backend.broker.publish(task.lane, [encode(push) for push in pushes])
    if key and announce:
        await backend.recipient_windows.announce([collapse_mark(task.app, push) for push in pushes])
    return await backend.registry.change(task.id, task_changes.seal(len(pushes)))


async def counts(backend: Backend, task: Task) -> tuple[int, int]:
    [progress] = await backend.registry.progress([task.id])
    return progress.delivered, progress.dropped


def seqs(sink: MemorySink, task: Task) -> list[int]:
    return [seq for _, seq in sink.pushes(task)]


async def test_a_recipient_gets_one_push_of_a_deduped_task(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add(backend, "anna", "bert", "anna", "anna", "carl", dedupe=True)
        sink = MemorySink()

        await drain(backend, sink, settings)

        got = [delivery.push.recipient for delivery in sink.received]
        assert sorted(got) == ["anna", "bert", "carl"]
        assert await counts(backend, task) == (3, 2)


async def test_other_tasks_send_to_the_same_recipient(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        tasks = [await add(backend, "anna", "anna", dedupe=True) for _ in range(2)]
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert [await counts(backend, task) for task in tasks] == [(1, 1), (1, 1)]


async def test_a_retry_is_no_duplicate_of_itself(tmp_path: Path) -> None:
    def once_more(delivery: Delivery) -> Outcome:
        return Outcome.retry("busy", 0.1) if delivery.push.attempt == 1 else DELIVERED

    async with backend_in(tmp_path) as (backend, settings):
        task = await add(backend, "anna", dedupe=True)
        sink = MemorySink(once_more)

        await drain(backend, sink, settings)

        assert seqs(sink, task) == [1, 1]
        assert await counts(backend, task) == (1, 0)


async def test_dedupe_holds_in_batches_too(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add(backend, *["anna", "bert"] * 20, dedupe=True)
        sink = MemorySink(batch_size=8)

        await drain(backend, sink, settings)

        assert await counts(backend, task) == (2, 38)


async def test_a_newer_push_replaces_the_one_that_waits(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        older = await add(backend, "anna", "bert", at_ms=1)
        newer = await add(backend, "anna", at_ms=2, level=Level.LOW)
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert (seqs(sink, older), seqs(sink, newer)) == ([2], [1])
        assert await counts(backend, older) == (1, 1)


async def test_another_app_replaces_nothing(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        older = await add(backend, "anna", at_ms=1, app="one")
        newer = await add(backend, "anna", at_ms=2, app="two")
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert (seqs(sink, older), seqs(sink, newer)) == ([1], [1])


async def test_an_older_push_that_comes_after_a_newer_one_is_dropped(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        sink = MemorySink()
        async with dispatching(backend, sink, settings):
            await add(backend, "anna", at_ms=2, announce=False)
            await sink.until_received(1)
            older = await add(backend, "anna", at_ms=1, announce=False)
            other = await add(backend, "bert", at_ms=3)
            await sink.until(lambda: bool(sink.pushes(other)))

        await drain(backend, sink, settings)
        assert seqs(sink, older) == []
        assert await counts(backend, older) == (0, 1)


async def test_a_newer_one_that_comes_during_delivery_waits_for_its_outcome(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        sink = MemorySink()
        sink.gate.clear()
        async with dispatching(backend, sink, settings):
            older = await add(backend, "anna", at_ms=1)
            await sink.until_received(1)
            newer = await add(backend, "anna", at_ms=2)
            other = await add(backend, "bert", at_ms=3)
            await sink.until(lambda: bool(sink.pushes(other)))
            assert seqs(sink, newer) == []

            sink.gate.set()
            await sink.until(lambda: bool(sink.pushes(newer)))

        assert [d.push.task_id for d in sink.received if d.push.recipient == "anna"] == [
            older.id,
            newer.id,
        ]


async def test_a_failed_push_that_was_replaced_meanwhile_is_not_tried_again(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):

        def busy(delivery: Delivery) -> Outcome:
            is_older = delivery.push.submitted_at_ms == 1
            return Outcome.retry("busy", 0.1) if is_older else DELIVERED

        sink = MemorySink(busy)
        sink.gate.clear()
        async with dispatching(backend, sink, settings):
            older = await add(backend, "anna", at_ms=1)
            await sink.until_received(1)
            newer = await add(backend, "anna", at_ms=2)
            sink.gate.set()
            await sink.until(lambda: bool(sink.pushes(newer)))

        await drain(backend, sink, settings)
        assert seqs(sink, older) == [1]
        assert await counts(backend, older) == (0, 1)


class Away(Wrapped):
    """Marks that nobody can reach, and when somebody has tried."""

    def __init__(self, real: object) -> None:
        super().__init__(real)
        self.is_away = True
        self.asked = asyncio.Event()

    async def first(self, marks: object) -> object:
        self.asked.set()
        if self.is_away:
            raise Unreachable("away")
        return await self._real.first(marks)


async def test_while_the_marks_are_away_pushes_wait_for_them(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        marks = Away(backend.recipient_windows)
        sink = MemorySink()
        async with dispatching(replace(backend, recipient_windows=marks), sink, settings):
            task = await add(backend, "anna", "anna", dedupe=True)
            await marks.asked.wait()
            assert sink.received == []
            marks.is_away = False
            await sink.until_received(1)

        await drain(backend, sink, settings)
        assert await counts(backend, task) == (1, 1)


async def test_or_duplicates_are_sent_and_counted_when_the_settings_say_so(tmp_path: Path) -> None:
    async with backend_in(tmp_path, ledger_away="degrade") as (backend, settings):
        away = replace(backend, recipient_windows=Away(backend.recipient_windows))
        sink = MemorySink()
        async with dispatching(away, sink, settings) as dispatcher:
            await add(backend, "anna", "anna", dedupe=True)
            await sink.until_received(2)

        assert dispatcher.stats.degraded == 2
