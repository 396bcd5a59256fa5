"""Suppression and frequency caps in a dispatcher: what goes, what is dropped or counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pushlane.backends.backend import Backend
from pushlane.core.errors import Unreachable
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Arrival, Outcome, Push, encode
from pushlane.core.task import Level, Task
from pushlane.core.turns import EVERY_APP
from pushlane.dispatcher import Dispatcher
from pushlane.dispatcher.guards.recipient_guard import ContactGuard
from pushlane.dispatcher.stats import CAPPED, SUPPRESSED, Stats
from pushlane.model import task_changes
from pushlane.model.limits import Limit, Limits, Subject, change_limit
from pushlane.model.recipients import EVERYWHERE, SuppressionScope, kept_hasher
from tests.core.support import (
    MemorySink,
    Wrapped,
    add_task,
    backend_in,
    dispatching,
    drain,
)

NOON_MS = 1_795_262_400_000  # 2026-11-21 12:00 UTC
HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def _looks_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pushlane.dispatcher.guards.recipient_guard._LOOK_S", 0.01)


async def add(
    backend: Backend,
    *recipients: str,
    addresses: dict[str, str] | None = None,
    push_zone: str = "",
    **fields: Any,
) -> Task:
    """A sealed task with a push to each."""
    task = await add_task(backend, pushes=0, seal=False, **fields)
    pushes = [
        Push(task.id, seq, to, zone=push_zone, addresses=addresses)
        for seq, to in enumerate(recipients, start=1)
    ]
    await backend.broker.publish(task.lane, [encode(push) for push in pushes])
    return await backend.registry.change(task.id, task_changes.seal(len(pushes)))


async def cap(backend: Backend, app: str = EVERY_APP, **by_level: int) -> Limits:
    subject = Subject("app", app)
    limit = Limit(recipient_a_day=by_level)
    await change_limit(backend.documents, subject, lambda _: limit)
    return {subject: limit}


async def suppress(backend: Backend, *values: str, scope: SuppressionScope = EVERYWHERE) -> None:
    hasher = await kept_hasher(backend.documents)
    await backend.suppressions.add(scope, hasher.hashes(values))


async def counts(backend: Backend, task: Task) -> tuple[int, int]:
    [progress] = await backend.registry.progress([task.id])
    return progress.delivered, progress.dropped


def got(sink: MemorySink) -> list[str]:
    return sorted(delivery.push.recipient for delivery in sink.received)


async def drain_at(backend: Backend, sink: MemorySink, settings: Any, at_ms: int) -> Dispatcher:
    dispatcher = Dispatcher(backend, sink, settings, drain=True, clock_ms=lambda: at_ms)
    await dispatcher.run()
    return dispatcher


async def test_a_suppressed_recipient_gets_nothing(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await suppress(backend, "anna")
        task = await add(backend, "anna", "bert", "anna")
        sink = MemorySink()

        dispatcher = Dispatcher(backend, sink, settings, drain=True)
        await dispatcher.run()

        assert got(sink) == ["bert"]
        assert await counts(backend, task) == (1, 2)
        assert dispatcher.stats.dropped[SUPPRESSED] == 2


async def test_a_suppression_of_an_app_holds_for_that_app(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await suppress(backend, "anna", scope=SuppressionScope("app", "shop"))
        await add(backend, "anna", app="shop")
        await add(backend, "anna", app="news")
        sink = MemorySink(batch_size=8)

        await drain(backend, sink, settings)

        assert [delivery.push.recipient for delivery in sink.received] == ["anna"]


@pytest.mark.parametrize(
    ("addresses", "expected"), [({"default": "dead"}, []), ({"other": "dead"}, ["anna"])]
)
async def test_a_suppressed_address_of_this_sink_is_not_sent_to(
    tmp_path: Path, addresses: dict[str, str], expected: list[str]
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await suppress(backend, "dead", scope=SuppressionScope("sink", "default"))
        await add(backend, "anna", addresses=addresses)
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert got(sink) == expected


async def test_a_push_goes_on_to_the_next_sink_when_its_address_is_suppressed(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await suppress(backend, "dead", scope=SuppressionScope("sink", "fcm"))
        task = await add_task(
            backend, pushes=2, sinks=("fcm", "sms"), addresses=lambda seq: {"fcm": "dead"}
        )
        sinks = {"fcm": MemorySink(), "sms": MemorySink()}

        await drain(backend, sinks, settings)

        assert sinks["fcm"].received == []
        assert sorted(sinks["sms"].pushes()) == [(task.id, 1), (task.id, 2)]


async def test_what_is_suppressed_while_all_runs_holds_soon(tmp_path: Path) -> None:
    looked = asyncio.Event()

    class Watched(Wrapped):
        async def counts(self) -> Any:
            found = await self._real.counts()
            if found:
                looked.set()
            return found

    async with backend_in(tmp_path) as (real, settings):
        backend = replace(real, suppressions=Watched(real.suppressions))
        sink = MemorySink()
        async with dispatching(backend, sink, settings):
            await add(backend, "anna")
            await sink.until_received(1)
            await suppress(backend, "anna")
            await looked.wait()
            await add(backend, "anna", "bert")
            await sink.until_received(2)

        assert got(sink) == ["anna", "bert"]


async def test_a_recipient_gets_as_many_as_the_cap_allows(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await cap(backend, all=2)
        tasks = [await add(backend, "anna", "bert", "anna") for _ in range(2)]
        sink = MemorySink(batch_size=4)

        dispatcher = Dispatcher(backend, sink, settings, drain=True)
        await dispatcher.run()

        assert got(sink) == ["anna", "anna", "bert", "bert"]
        assert sum([(await counts(backend, task))[1] for task in tasks]) == 2
        assert dispatcher.stats.dropped[CAPPED] == 2


async def test_levels_have_caps_of_their_own(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await cap(backend, low=1, all=3)
        await add(backend, "anna", "anna", level=Level.LOW)
        await add(backend, "anna", "anna", "anna", level=Level.HIGH)
        sink = MemorySink()

        await drain(backend, sink, settings)

        levels = [delivery.level for delivery in sink.received]
        assert len(levels) == 3
        assert levels.count(Level.LOW) <= 1


async def test_apps_are_counted_apart_and_their_own_cap_comes_first(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await cap(backend, all=1)
        await cap(backend, "shop", all=2)
        for app in ("shop", "news", "games"):
            await add(backend, "anna", "anna", "anna", app=app)
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert len(sink.received) == 2 + 1 + 1


async def test_a_cap_that_is_set_while_all_runs_holds_from_then_on(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        sink = MemorySink()
        async with dispatching(backend, sink, settings) as dispatcher:
            await add(backend, "anna", "anna")
            await sink.until_received(2)
            guard = dispatcher._lines[0].contact_guard
            guard.on_limits({Subject("app", EVERY_APP): Limit(recipient_a_day={"all": 1})})
            await add(backend, "anna", "anna", "bert")
            await sink.until_received(4)
            guard.on_limits({})
            await add(backend, "anna")
            await sink.until_received(5)

        assert got(sink) == ["anna"] * 4 + ["bert"]


async def test_a_retry_is_counted_once(tmp_path: Path) -> None:
    def once_more(delivery: Delivery) -> Outcome:
        return Outcome.retry("busy", 0.05) if delivery.push.attempt == 1 else DELIVERED

    async with backend_in(tmp_path) as (backend, settings):
        await cap(backend, all=1)
        task = await add(backend, "anna")
        sink = MemorySink(once_more)

        await drain(backend, sink, settings)

        assert len(sink.received) == 2
        assert await counts(backend, task) == (1, 0)


@pytest.mark.parametrize(
    ("outcome", "delivered"),
    [
        (Outcome.dead("no such device"), 1),
        (Outcome.dead("timed out", arrival=Arrival.UNKNOWN), 0),
    ],
    ids=["has not arrived", "may have arrived"],
)
async def test_a_dead_push_gives_its_place_back_unless_it_may_have_arrived(
    tmp_path: Path, outcome: Outcome, delivered: int
) -> None:
    answers = {"first": outcome}

    def answer(delivery: Delivery) -> Outcome:
        return answers.pop("first", DELIVERED)

    async with backend_in(tmp_path) as (backend, settings):
        await cap(backend, all=1)
        await add(backend, "anna")
        await drain(backend, MemorySink(answer), settings)
        second = await add(backend, "anna")

        await drain(backend, MemorySink(answer), settings)

        assert await counts(backend, second) == (delivered, 1 - delivered)


async def test_a_duplicate_takes_no_place(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await cap(backend, all=2)
        await add(backend, "anna", "anna", "anna", dedupe=True)
        await drain(backend, MemorySink(), settings)
        await add(backend, "anna", "anna")
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert len(sink.received) == 1


async def test_a_suppressed_push_takes_no_place(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await cap(backend, all=1)
        await suppress(backend, "anna")
        await add(backend, "anna")
        await drain(backend, MemorySink(), settings)
        hasher = await kept_hasher(backend.documents)
        await backend.suppressions.remove(EVERYWHERE, hasher.hashes(["anna"]))
        await add(backend, "anna")
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert got(sink) == ["anna"]


@pytest.mark.parametrize(
    ("push_zone", "task_zone", "delivered"),
    [
        ("Pacific/Auckland", "", 2),
        ("", "Pacific/Auckland", 2),
        ("UTC", "Pacific/Auckland", 1),
        ("", "", 1),
        ("Nowhere/Land", "", 1),
    ],
)
async def test_the_day_is_that_of_the_push_then_of_its_task(
    tmp_path: Path, push_zone: str, task_zone: str, delivered: int
) -> None:
    """Two hours before and after noon in UTC, which is about midnight in Auckland."""
    async with backend_in(tmp_path) as (backend, settings):
        await cap(backend, all=1)
        sink = MemorySink()
        for at_ms in (NOON_MS - 2 * HOUR_MS, NOON_MS + 2 * HOUR_MS):
            await add(backend, "anna", push_zone=push_zone, zone=task_zone)

            await drain_at(backend, sink, settings, at_ms)

        assert len(sink.received) == delivered


async def test_another_process_counts_no_push_again(tmp_path: Path) -> None:
    """A dispatcher that is lost between the count and the outcome."""
    async with backend_in(tmp_path) as (backend, settings):
        await cap(backend, all=1)
        task = await add(backend, "anna")
        stuck = MemorySink()
        stuck.gate.clear()
        lost = Dispatcher(backend, stuck, settings.but(drain_timeout_s=0.01))
        running = asyncio.create_task(lost.run())
        await stuck.until_received(1)
        lost.stop()
        await running
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert got(sink) == ["anna"]
        assert await counts(backend, task) == (1, 0)


class Away(Wrapped):
    """A port whose named calls do not get through, and when somebody has tried."""

    def __init__(self, real: object, *names: str) -> None:
        super().__init__(real)
        self.names = set(names)
        self.asked = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        if name not in self.names:
            return getattr(self._real, name)

        async def fail(*_: object) -> None:
            self.asked.set()
            raise Unreachable("away")

        return fail


Wrap = Callable[[Backend], tuple[Away, Backend]]


def _windows(backend: Backend) -> tuple[Away, Backend]:
    away = Away(backend.recipient_windows, "count")
    return away, replace(backend, recipient_windows=away)


def _suppressions(backend: Backend) -> tuple[Away, Backend]:
    away = Away(backend.suppressions, "counts", "find")
    return away, replace(backend, suppressions=away)


@pytest.mark.parametrize("wrap", [_windows, _suppressions])
async def test_while_the_store_is_away_pushes_wait_for_it(tmp_path: Path, wrap: Wrap) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await cap(backend, all=1)
        away, without = wrap(backend)
        sink = MemorySink()
        async with dispatching(without, sink, settings):
            task = await add(backend, "anna", "anna")
            await away.asked.wait()
            assert sink.received == []
            away.names.clear()
            await sink.until_received(1)

        await drain(backend, sink, settings)
        assert await counts(backend, task) == (1, 1)


@pytest.mark.parametrize("wrap", [_windows, _suppressions])
async def test_or_they_go_and_are_counted_when_the_settings_say_so(
    tmp_path: Path, wrap: Wrap
) -> None:
    async with backend_in(tmp_path, ledger_away="degrade") as (backend, settings):
        await cap(backend, all=1)
        _, without = wrap(backend)
        sink = MemorySink()
        async with dispatching(without, sink, settings) as dispatcher:
            await add(backend, "anna", "anna")
            await sink.until_received(2)

        assert dispatcher.stats.degraded == 2


async def test_without_caps_and_suppressions_no_push_is_asked_about(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        away = Away(backend.recipient_windows, "count")
        find = Away(backend.suppressions, "find")
        without = replace(backend, recipient_windows=away, suppressions=find)
        await add(backend, "anna", "bert")

        await drain(without, MemorySink(), settings)

        assert not away.asked.is_set()
        assert not find.asked.is_set()


async def test_tasks_are_looked_at_anew_only_when_a_scope_has_its_first_or_last_suppression(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        settler: Any = SimpleNamespace(sink="default")
        guard = ContactGuard(backend, settings, settler, Stats(), lambda: NOON_MS)
        said: list[str] = []
        steps = {"first": (), "again": (), "some": ("anna",), "more": ("bert",), "as before": ()}
        for name, recipients in steps.items():
            guard.changed = partial(said.append, name)
            await suppress(backend, *recipients)
            await guard._read_scopes()

    assert said == ["first", "some"]


async def test_a_limit_of_a_newer_version_keeps_no_push_back(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, settings):
        await backend.documents.put("limit", "template/x", b"{}", None)
        await backend.documents.put("limit", "app/x", b'{"quota": "soon"}', None)
        await add(backend, "anna")
        sink = MemorySink()

        await drain(backend, sink, settings)

        assert got(sink) == ["anna"]
