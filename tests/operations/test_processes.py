"""Formats, the pool, sinks and events: what is shown, and what the audit has of a change."""

from __future__ import annotations

from typing import Any

import pytest

from pushlane import BadInput, Settings, TaskConflict
from pushlane.backends.backend import Backend, connect
from pushlane.core.push import FORMAT
from pushlane.core.task import Level, Task
from pushlane.model.access import Access, Role
from pushlane.model.audit import Entry
from pushlane.model.presence import Process, Resting, ServedSink, SinkTarget
from pushlane.model.receipt import Event
from pushlane.model.targets import note_delivered, target_history
from pushlane.operations.doing import do
from pushlane.operations.events import (
    MOST_EVENTS,
    BadEvents,
    DeviceEvent,
    RecordEvents,
)
from pushlane.operations.pool import GetPool, SetPool
from pushlane.operations.processes import GetFormats, ListAudit, SetFormats
from pushlane.operations.session import Caller
from pushlane.operations.sinks import AcceptSink, ListSinks
from pushlane.operations.views import plain
from pushlane.util.errors import UnknownTask

ADMIN = Caller("ada", "cli")
TARGET = SinkTarget("webhook", "push.example.com", "01")
AT_MS = 2_000_000_000_000


async def audit(backend: Backend, settings: Settings) -> list[Entry]:
    return await do(backend, settings, ADMIN, ListAudit())


async def announce(backend: Backend, *served: ServedSink, format_number: int = FORMAT) -> None:
    process = Process(
        id="d-1",
        kind="dispatcher",
        pid=7,
        version="1",
        format=format_number,
        serves=tuple(one.name for one in served),
        served=served,
    )
    await backend.presence.announce(process, 60.0)


async def add(backend: Backend, task: str, app: str, **given: Any) -> None:
    made = Task(id=task, level=Level.LOW, lane=f"task-{task}", app=app, total=5, **given)
    await backend.registry.add(made)


async def test_formats_are_shown_and_raised(settings: Settings) -> None:
    async with connect(settings) as backend:
        before = plain(await do(backend, settings, ADMIN, GetFormats()))
        await announce(backend)
        after = plain(await do(backend, settings, ADMIN, SetFormats.made(min_format="2")))

        [entry] = await audit(backend, settings)

    assert before == {"min_format": 1, "this_reads": FORMAT}
    assert after == {"min_format": 2, "this_reads": FORMAT, "all_read": FORMAT}
    assert (entry.subject, entry.before, entry.after) == (
        "formats",
        {"min_format": 1},
        {"min_format": 2},
    )


async def test_a_format_that_somebody_does_not_read_is_refused(settings: Settings) -> None:
    async with connect(settings) as backend:
        await announce(backend, format_number=1)

        with pytest.raises(TaskConflict, match="1 live processes do not read format 2"):
            await do(backend, settings, ADMIN, SetFormats(min_format=2))

        assert await audit(backend, settings) == []


async def test_the_pool_shows_its_lanes_and_those_of_before(settings: Settings) -> None:
    async with connect(settings) as backend:
        await do(backend, settings, ADMIN, SetPool(lanes=3))
        await backend.registry.add(Task(id="t", level=Level.LOW, lane="pool-2", total=5))
        shown = plain(await do(backend, settings, ADMIN, SetPool.made(lanes="1")))

        assert shown == plain(await do(backend, settings, ADMIN, GetPool()))
        [newest, _] = await audit(backend, settings)

    assert shown == {
        "lanes": 1,
        "shared": [
            {"lane": "pool-0", "left": 0, "tasks": 0},
            {"lane": "pool-2", "left": 0, "tasks": 1},
        ],
    }
    assert (newest.subject, newest.before, newest.after) == ("pool", {"lanes": 3}, {"lanes": 1})


async def test_sinks_are_those_that_are_served_or_gone_to(settings: Settings) -> None:
    resting = Resting("sink push (open)", AT_MS, "no connection", 0)
    async with connect(settings) as backend:
        await announce(backend, ServedSink(name="push", target=TARGET, resting=resting))
        await add(backend, "t1", "shop", sinks=("sms", "push"))

        found = [plain(one) for one in await do(backend, settings, ADMIN, ListSinks())]

    assert found == [
        {
            "sink": "push",
            "kind": "webhook at push.example.com",
            "served_by": 1,
            "state": "no connection",
            "targets": [plain(TARGET)],
        },
        {
            "sink": "sms",
            "served_by": 0,
            "state": "nobody serves it, 1 task waits",
            "targets": [],
        },
    ]


async def test_a_sink_is_accepted_by_what_live_processes_deliver_to(settings: Settings) -> None:
    async with connect(settings) as backend:
        await announce(backend, ServedSink(name="push", target=TARGET))

        shown = await do(backend, settings, ADMIN, AcceptSink(sink="push"))
        accepted = await target_history(backend.documents, TARGET.hash)
        await do(backend, settings, ADMIN, AcceptSink(sink="push", undo=True))
        undone = await target_history(backend.documents, TARGET.hash)
        entries = await audit(backend, settings)

    assert plain(shown) == {"sink": "push", "accepted": True, "targets": [plain(TARGET)]}
    assert (bool(accepted.accepted_at_ms), bool(undone.accepted_at_ms)) == (True, False)
    assert [(one.subject, one.after) for one in entries] == [
        ("sink/push", {"accepted": False}),
        ("sink/push", {"accepted": True}),
    ]


async def test_what_nobody_serves_or_has_delivered_cannot_be_accepted(settings: Settings) -> None:
    async with connect(settings) as backend:
        with pytest.raises(BadInput, match="no live process serves sink push; start"):
            await do(backend, settings, ADMIN, AcceptSink(sink="push"))
        await announce(backend, ServedSink(name="push", target=TARGET))
        await note_delivered(backend.documents, TARGET.hash, AT_MS)
        with pytest.raises(BadInput, match="has delivered before"):
            await do(backend, settings, ADMIN, AcceptSink(sink="push"))

        assert await audit(backend, settings) == []


def clicks(*pushes: str) -> tuple[DeviceEvent, ...]:
    return tuple(DeviceEvent(push_id=one, event=Event.CLICKED, at_ms=AT_MS) for one in pushes)


async def test_events_are_recorded_for_the_callers_apps_alone(settings: Settings) -> None:
    caller = Caller("bob", "http", Access(Role.SUBMITTER, frozenset({"shop"})))
    async with connect(settings) as backend:
        await add(backend, "t1", "shop")
        await add(backend, "t2", "bank")

        shown = await do(backend, settings, caller, RecordEvents(events=clicks("t1-1", "t1-2")))
        with pytest.raises(UnknownTask, match="no task 't2' of an app that you may see"):
            await do(backend, settings, caller, RecordEvents(events=clicks("t2-1")))

        assert await audit(backend, settings) == []
    assert plain(shown) == {"recorded": 2, "rejected": []}


@pytest.mark.parametrize(
    ("bad", "recorded", "places"), [(BadEvents.STOP, 1, [2]), (BadEvents.SKIP, 2, [2, 3])]
)
async def test_events_that_cannot_be_recorded_are_told_by_their_places(
    settings: Settings, bad: BadEvents, recorded: int, places: list[int]
) -> None:
    async with connect(settings) as backend:
        await add(backend, "t1", "shop")
        asked = RecordEvents(events=clicks("t1-1", "t1-6", "no-1", "t1-2"), bad=bad)

        shown = await do(backend, settings, ADMIN, asked)

    assert shown.recorded == recorded
    assert [one.place for one in shown.rejected] == places
    assert shown.rejected[0].why == "task t1 has 5 pushes, so none is t1-6"


async def test_too_many_events_at_once_are_recorded_page_by_page(settings: Settings) -> None:
    from pushlane import Client, PushEvent

    async with Client(settings) as client:
        async with connect(settings) as backend:
            given = Task(id="t1", level=Level.LOW, lane="x", total=MOST_EVENTS + 1)
            await backend.registry.add(given)
        events = (PushEvent(f"t1-{n}", "clicked", AT_MS) for n in range(1, MOST_EVENTS + 2))

        assert await client.record_events(events) == MOST_EVENTS + 1
