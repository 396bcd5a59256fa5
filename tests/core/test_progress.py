"""How it goes: once a minute in the log, and for each task."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Kind, Outcome
from pushlane.core.task import Finished, Level
from pushlane.dispatcher.progress import DispatchProgress, ProgressLog, TaskRates
from pushlane.model.presence import MOST_TASKS
from tests.core.support import MemorySink, add_task, backend_in, dispatching, until


class Minutes:
    """The lines of a log of progress, at times and counts that a test sets."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        self._caplog = caplog
        self.at_s = 1_000.0
        self.outcomes = dict.fromkeys(Kind, 0)
        self.died_of: dict[str, int] = {}
        self.in_flight = 0
        self.resting: list[str] = []
        self.log = ProgressLog(self.look, lambda: self.at_s)

    def look(self) -> DispatchProgress:
        return DispatchProgress(
            outcomes={**self.outcomes},
            died_of={**self.died_of},
            in_flight=self.in_flight,
            resting=[*self.resting],
        )

    def die(self, count: int, reason: str) -> None:
        self.outcomes[Kind.DEAD] += count
        self.died_of[reason] = self.died_of.get(reason, 0) + count

    def said(self) -> list[str]:
        self.at_s += 60
        self.log.say()
        records = [one for one in self._caplog.records if one.name == "pushlane.progress"]
        assert {(one.action, one.levelname) for one in records} <= {("progress", "INFO")}
        self._caplog.clear()
        return [record.getMessage() for record in records]


@pytest.fixture
def minutes(caplog: pytest.LogCaptureFixture) -> Minutes:
    return Minutes(caplog)


def test_a_minute_is_told_with_its_own_counts(minutes: Minutes) -> None:
    minutes.outcomes[Kind.DELIVERED] = 30_000
    minutes.in_flight = 40
    assert minutes.said() == ["30,000 delivered in the last 60 s: 500/s; 40 in flight"]

    minutes.outcomes[Kind.DELIVERED] += 1_167
    minutes.outcomes[Kind.RETRY] += 12
    minutes.die(30, "HTTP 404")
    minutes.die(3, "no answer")
    assert minutes.said() == [
        "1,167 delivered, 33 dead (30 HTTP 404, 3 no answer), 12 again in the last 60 s: 20/s; "
        "40 in flight"
    ]

    minutes.die(3, "HTTP 404")
    assert minutes.said() == [
        "0 delivered, 3 dead (HTTP 404) in the last 60 s: 0.05/s; 40 in flight"
    ]


def test_nothing_is_said_of_a_minute_in_which_nothing_happened(minutes: Minutes) -> None:
    assert minutes.said() == []
    minutes.outcomes[Kind.EXPIRED] = 60
    assert minutes.said() == ["0 delivered, 60 expired in the last 60 s: 1/s; 0 in flight"]
    assert minutes.said() == []


def test_what_holds_it_up_is_told(minutes: Minutes) -> None:
    minutes.resting = ["sink fcm rests", "sink sms gets fewer pushes"]
    minutes.outcomes[Kind.RETRY] = 6

    assert minutes.said() == [
        "0 delivered, 6 again in the last 60 s: 0/s; 0 in flight; sink fcm rests; "
        "sink sms gets fewer pushes"
    ]


def test_of_many_classes_the_commonest_are_named(minutes: Minutes) -> None:
    for count in range(1, 8):
        minutes.die(count, f"HTTP 50{count}")

    [said] = minutes.said()
    assert said.startswith(
        "0 delivered, 28 dead (7 HTTP 507, 6 HTTP 506, 5 HTTP 505, 4 HTTP 504, 3 HTTP 503, "
        "3 of other reasons) in"
    )


async def test_a_dispatcher_counts_over_its_sinks_and_by_class(tmp_path: Path) -> None:
    sinks = {"a": {"kind": "null"}, "b": {"kind": "null"}}
    async with backend_in(tmp_path, sinks=sinks) as (backend, settings):
        await add_task(backend, Level.HIGH, 20, sinks=("a",))
        await add_task(backend, Level.LOW, 20, sinks=("b",))

        def answer(delivery: Delivery) -> Outcome:
            if delivery.push.seq == 7:
                return Outcome.dead(f"HTTP 404: no {delivery.push.recipient}")
            return Outcome.gone("unregistered") if delivery.push.seq == 8 else DELIVERED

        both = {"a": MemorySink(), "b": MemorySink(answer)}
        async with dispatching(backend, both, settings) as dispatcher:
            assert dispatcher.progress().left is None
            await until(lambda: dispatcher.progress().ended == 40)
            found = dispatcher.progress()
            await until(lambda: dispatcher.progress().left == 0)

    assert found.outcomes == {
        Kind.DELIVERED: 38,
        Kind.DEAD: 2,
        Kind.RETRY: 0,
        Kind.EXPIRED: 0,
        Kind.DROPPED: 0,
    }
    assert found.died_of == {"HTTP 404": 1, "dead address": 1}
    assert found.resting == []


async def test_what_is_left_shrinks_with_what_ends_here(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await add_task(backend, Level.HIGH, 50)
        sink = MemorySink()
        sink.gate.clear()
        async with dispatching(backend, sink, settings) as dispatcher:
            await until(lambda: dispatcher.progress().left == 50)
            sink.gate.set()
            await until(lambda: dispatcher.progress().left == 0)


async def test_a_sink_that_rests_is_named_without_its_words(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await add_task(backend, Level.HIGH, 20)
        sink = MemorySink(lambda _: Outcome.throttled("no connection"))
        async with dispatching(backend, sink, settings) as dispatcher:
            await until(lambda: dispatcher.progress().resting == ["sink default rests"])


class Ending:
    """Tells how fast tasks are, at times that a test sets."""

    def __init__(self) -> None:
        self.at_s = 100.0
        self.rates = TaskRates(lambda: self.at_s)

    async def end(self, task_id: str, count: int) -> None:
        await self.rates.settled((), [Finished(task_id, Kind.DELIVERED, [*range(count)])], ())


async def test_a_task_is_as_fast_as_in_the_last_ten_seconds() -> None:
    ending = Ending()
    await ending.end("a", 500)
    ending.at_s += 5
    await ending.end("b", 10)
    assert ending.rates.per_s() == {"a": 100.0, "b": 2.0}

    ending.at_s += 5
    assert ending.rates.per_s() == {"b": 1.0}
    ending.at_s += 5
    assert ending.rates.per_s() == {}


async def test_of_very_many_tasks_the_fastest_are_named() -> None:
    ending = Ending()
    for number in range(1_000):
        await ending.end(f"t{number}", number)
    ending.at_s += 1

    named = ending.rates.per_s()
    assert len(named) == MOST_TASKS
    assert named["t999"] == 999.0
    assert min(named.values()) == 1_000 - MOST_TASKS


async def test_a_process_says_which_lanes_hold_its_slots(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task, sink = await add_task(backend, Level.HIGH, 3), MemorySink()
        sink.gate.clear()
        async with dispatching(backend, sink, settings) as dispatcher:
            await until(lambda: dispatcher.as_process().served[0].in_flight == 3)
            assert dispatcher.as_process().served[0].lane_slots == {task.lane: 3}
            sink.gate.set()
            await until(lambda: dispatcher.progress().ended == 3)
            assert dispatcher.as_process().served[0].lane_slots == {}


async def test_a_process_says_how_fast_its_tasks_are(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        task = await add_task(backend, Level.HIGH, 30)
        async with dispatching(backend, MemorySink(), settings) as dispatcher:
            await until(lambda: dispatcher.progress().ended == 30)
            await until(lambda: dispatcher.as_process().served[0].tasks_per_s)
            [(named, per_s)] = (dispatcher.as_process().served[0].tasks_per_s or {}).items()

    assert named == task.id
    assert 0 < per_s <= 30
