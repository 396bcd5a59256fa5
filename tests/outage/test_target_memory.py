"""What is kept of a target, and what dispatchers make of it: with a store, and several of them.

The breaker's time is the test's where it has to pass.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pushlane.backends.backend import Backend
from pushlane.core.errors import Unreachable, UserError
from pushlane.core.push import DELIVERED, Outcome
from pushlane.core.task import Level, State
from pushlane.dispatcher import Dispatcher
from pushlane.dispatcher.failures import TargetStanding, TargetWords
from pushlane.dispatcher.outage import GIVE_UP_AFTER_S, TargetMemory
from pushlane.model.presence import SinkTarget
from pushlane.model.targets import (
    PlainTarget,
    TargetHistory,
    accept,
    note_delivered,
    target_history,
)
from tests.core.support import (
    DEADLINE_S,
    MemorySink,
    Wrapped,
    add_task,
    backend_in,
    dispatching,
    drain,
    until,
    until_state,
)
from tests.outage.outages import NOT_FOUND
from tests.outage.test_outage import Clock, Sink

SLOTS = 50
ROW = 20
NOW_MS = 5_000
TARGET = SinkTarget("webhook", "127.0.0.1:9012", "6f1d")
ELSEWHERE = SinkTarget("webhook", "127.0.0.1:9012", "0b22")


class Line:
    """Stands for an outage: remembers what it was told."""

    def __init__(self) -> None:
        self.rests = False
        self.has_delivered = False
        self.target: SinkTarget | None = TARGET
        self.learned: list[tuple[TargetStanding, bool]] = []
        self.words = TargetWords()
        self.woken = 0

    def learn(self, known: TargetStanding, words: TargetWords, *, is_other: bool) -> None:
        self.learned.append((known, is_other))
        self.words = words

    def wake(self) -> None:
        self.woken += 1

    def memory(self, documents: Any) -> TargetMemory:
        outage: Any = self
        return TargetMemory(documents, lambda: self.target, outage, lambda: NOW_MS, self.wake)


class Documents(Wrapped):
    """Counts what it is asked; is away for as long as it is told to."""

    def __init__(self, real: Any) -> None:
        super().__init__(real)
        self.asked = 0
        self.is_away = False

    def __getattr__(self, name: str) -> Any:
        self.asked += 1
        if self.is_away:
            raise Unreachable("the store is away")
        return getattr(self._real, name)


@asynccontextmanager
async def documents_in(folder: Path) -> AsyncIterator[Documents]:
    async with backend_in(folder) as (backend, _):
        yield Documents(backend.documents)


async def test_a_target_of_which_nothing_is_kept_is_new_and_named_in_words(tmp_path: Path) -> None:
    async with documents_in(tmp_path) as documents:
        line = Line()
        await line.memory(documents).look()

        assert line.learned == [(TargetStanding.NEW, True)]
        assert line.words == TargetWords("webhook at 127.0.0.1:9012", "is the URL right?")


async def test_the_first_delivery_is_kept_and_then_nothing_is_asked_any_more(
    tmp_path: Path,
) -> None:
    async with documents_in(tmp_path) as documents:
        line = Line()
        memory = line.memory(documents)
        await memory.look()
        line.has_delivered = True
        await memory.look()
        assert (await target_history(documents, TARGET.hash)).delivered_at_ms == NOW_MS
        asked = documents.asked

        line.rests = True
        for _ in range(10):
            await memory.look()

        assert documents.asked == asked


async def test_the_next_process_knows_it(tmp_path: Path) -> None:
    async with documents_in(tmp_path) as documents:
        await note_delivered(documents, TARGET.hash, 1)
        line = Line()
        await line.memory(documents).look()

        assert line.learned == [(TargetStanding.PROVEN, True)]


async def test_a_new_target_is_asked_about_only_while_it_rests(tmp_path: Path) -> None:
    async with documents_in(tmp_path) as documents:
        line = Line()
        memory = line.memory(documents)
        await memory.look()
        await note_delivered(documents, TARGET.hash, 1)
        await memory.look()
        assert line.learned[1:] == []

        line.rests = True
        await memory.look()

        assert line.learned[1:] == [(TargetStanding.PROVEN, False)]
        assert line.woken == len(line.learned)


async def test_accepted_answers_are_heard_of_and_so_is_taking_that_back(tmp_path: Path) -> None:
    async with documents_in(tmp_path) as documents:
        line = Line()
        line.rests = True
        memory = line.memory(documents)
        await memory.look()
        await accept(documents, TARGET.hash, 1)
        await memory.look()
        line.rests = False
        await accept(documents, TARGET.hash, 0)
        await memory.look()

        assert [known for known, _ in line.learned] == [
            TargetStanding.NEW,
            TargetStanding.ACCEPTED,
            TargetStanding.NEW,
        ]


async def test_a_sink_that_leads_elsewhere_is_another_target(tmp_path: Path) -> None:
    async with documents_in(tmp_path) as documents:
        await note_delivered(documents, TARGET.hash, 1)
        line = Line()
        memory = line.memory(documents)
        await memory.look()

        line.target = ELSEWHERE
        await memory.look()

        assert line.learned == [(TargetStanding.PROVEN, True), (TargetStanding.NEW, True)]


@pytest.mark.parametrize("target", [None, SinkTarget("null", delivers=False)])
async def test_what_delivers_nothing_has_no_history(
    tmp_path: Path, target: SinkTarget | None
) -> None:
    async with documents_in(tmp_path) as documents:
        line = Line()
        line.target, line.has_delivered = target, True
        await line.memory(documents).look()

        assert line.learned == []
        assert await documents.list("target") == []


async def test_what_only_a_newer_version_reads_is_left_and_its_sink_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with documents_in(tmp_path) as documents:
        await documents.put("target", TARGET.hash, b"[9]", None)
        line = Line()
        line.has_delivered = True
        await line.memory(documents).look()

        assert line.learned == [(TargetStanding.UNKNOWN, True)]
        assert "upgrade this process" in caplog.text
        [kept] = await documents.list("target")
        assert kept.body == b"[9]"


async def test_a_delivery_is_kept_once_the_store_is_back(tmp_path: Path) -> None:
    async with documents_in(tmp_path) as documents:
        line = Line()
        memory = line.memory(documents)
        await memory.look()
        line.has_delivered, documents.is_away = True, True
        with pytest.raises(Unreachable):
            await memory.look()
        await memory.drain(1.0)

        documents.is_away = False
        await memory.drain(1.0)

        assert (await target_history(documents, TARGET.hash)).delivered_at_ms == NOW_MS


async def kept(backend: Backend) -> list[TargetHistory]:
    found = await backend.documents.list("target")
    return [await target_history(backend.documents, one.name) for one in found]


async def test_a_short_run_that_delivers_leaves_the_target_proven(tmp_path: Path) -> None:
    async with backend_in(tmp_path, slots=SLOTS) as (backend, settings):
        await add_task(backend, pushes=3)
        await drain(backend, MemorySink(), settings)

        [history] = await kept(backend)
        assert history.delivered_at_ms


async def test_a_new_target_with_final_answers_to_all_buries_nineteen_and_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with backend_in(tmp_path, slots=SLOTS) as (backend, settings):
        task = await add_task(backend, pushes=2_000)
        sink = MemorySink(lambda _: NOT_FOUND)
        async with dispatching(backend, sink, settings) as dispatcher:
            await until(lambda: bool(dispatcher.resting()))
            [rests] = dispatcher.resting()
            [said] = dispatcher.as_process().resting

        [progress] = await backend.registry.progress([task.id])
        assert (progress.delivered, progress.dead) == (0, ROW - 1)
        assert len(sink.received) <= SLOTS + ROW
        assert rests.is_unproven
        assert said.is_unproven
        assert said.why == "memory has answered HTTP 404 to all 20 pushes: is it set up right?"
        assert said.why in caplog.text


async def test_with_the_right_target_all_go_but_those_that_died(tmp_path: Path) -> None:
    async with backend_in(tmp_path, slots=SLOTS) as (backend, settings):
        task = await add_task(backend, pushes=500)
        async with dispatching(backend, MemorySink(lambda _: NOT_FOUND), settings) as dispatcher:
            await until(lambda: bool(dispatcher.resting()))

        await drain(backend, MemorySink(), settings)

        [progress] = await backend.registry.progress([task.id])
        assert (progress.delivered, progress.dead) == (500 - ROW + 1, ROW - 1)


async def test_accepting_reaches_a_live_process_and_outlives_a_restart(tmp_path: Path) -> None:
    async with backend_in(tmp_path, slots=SLOTS) as (backend, settings):
        task = await add_task(backend, pushes=300)
        async with dispatching(backend, MemorySink(lambda _: NOT_FOUND), settings) as dispatcher:
            await until(lambda: bool(dispatcher.resting()))
            [served] = dispatcher.as_process().served
            assert served.target is not None
            await accept(backend.documents, served.target.hash, 1)
            await until_state(backend, task, State.DONE)

        other = await add_task(backend, pushes=300)
        await drain(backend, MemorySink(lambda _: NOT_FOUND), settings)

        counts = await backend.registry.progress([task.id, other.id])
        assert [progress.dead for progress in counts] == [300, 300]


async def test_two_processes_share_what_one_of_them_found_out(tmp_path: Path) -> None:
    """The one that rests is tried again as soon as the other has delivered."""
    async with backend_in(tmp_path, slots=SLOTS) as (backend, settings):
        is_down = [True]
        sink = MemorySink(lambda _: NOT_FOUND if is_down[0] else DELIVERED)
        await add_task(backend, pushes=100)
        async with dispatching(backend, sink, settings) as resting:
            await until(lambda: bool(resting.resting()))
            [served] = resting.as_process().served
            assert served.target is not None
            is_down[0] = False
            await note_delivered(backend.documents, served.target.hash, 1)
            await until(lambda: not resting.resting())


class Named(MemorySink):
    """A sink that is somewhere."""

    def __init__(self, answer: Outcome, place: str) -> None:
        super().__init__(lambda _: answer)
        self.target = PlainTarget("webhook", "127.0.0.1:9012", (place,))


async def until_ended(dispatcher: Dispatcher, sink: MemorySink, clock: Clock) -> None:
    running = asyncio.create_task(clock.run(dispatcher, sink))
    try:
        async with asyncio.timeout(DEADLINE_S):
            await dispatcher.run()
    finally:
        running.cancel()


async def test_a_drain_gives_a_new_target_up_and_says_what_to_do(tmp_path: Path) -> None:
    async with backend_in(tmp_path, slots=SLOTS) as (backend, settings):
        task = await add_task(backend, pushes=500)
        clock = Clock()
        sink = Named(NOT_FOUND, "/psuh")
        dispatcher = Dispatcher(backend, sink, settings, drain=True, clock_s=clock)

        with pytest.raises(UserError, match=r"is the URL right.*pushlane sinks accept default"):
            await until_ended(dispatcher, sink, clock)

        assert clock.now_s >= GIVE_UP_AFTER_S
        [progress] = await backend.registry.progress([task.id])
        assert progress.dead == ROW - 1


async def test_a_drain_ends_what_goes_to_other_sinks_first(tmp_path: Path) -> None:
    async with backend_in(tmp_path, slots=SLOTS) as (backend, settings):
        await add_task(backend, pushes=100, sinks=("wrong",))
        well = await add_task(backend, pushes=100, sinks=("right",))
        clock = Clock()
        wrong = Named(NOT_FOUND, "/psuh")
        sinks = {"wrong": wrong, "right": Named(DELIVERED, "/push")}
        dispatcher = Dispatcher(backend, sinks, settings, drain=True, clock_s=clock)

        with pytest.raises(UserError, match=r"^sink wrong rests: [^;]*; what is left"):
            await until_ended(dispatcher, wrong, clock)

        assert (await backend.registry.get(well.id)).state is State.DONE


async def test_a_drain_with_few_pushes_ends_by_itself(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, pushes=5)
        await drain(backend, MemorySink(lambda _: NOT_FOUND), settings)

        assert (await backend.registry.get(task.id)).state is State.DONE


async def test_a_drain_waits_for_a_sink_that_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """For one that is away, and has not been heard of, it waits as long as that takes."""
    caplog.set_level(logging.INFO)
    async with backend_in(tmp_path, slots=SLOTS) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 300)
        clock = Clock()
        sink = Sink(clock, 3 * GIVE_UP_AFTER_S)
        await until_ended(
            Dispatcher(backend, sink, settings, drain=True, clock_s=clock), sink, clock
        )

        [progress] = await backend.registry.progress([task.id])
        assert (progress.delivered, progress.dead) == (300, 0)
