"""Events over HTTP: what there is, then what changes, to who may see it."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from pushlane import Settings
from pushlane.backends.backend import Backend
from pushlane.core.errors import Unreachable
from pushlane.core.task import Level, Task
from pushlane.door import events as door_events
from pushlane.door import watched, watching
from pushlane.operations.access import RevokeToken
from pushlane.operations.doing import do
from tests.door.asking import ADMIN, Asking, Event, Events, asking

ANY = {"If-Match": "*"}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks follow each other without a second between."""
    monkeypatch.setattr(watching, "EVERY_S", 0.005)


async def added(backend: Backend, name: str, app: str = "shop") -> str:
    made = Task(id=name, level=Level.HIGH, lane=f"task-{name}", name=name, app=app, total=3)
    return (await backend.registry.add(made)).id


async def until(events: Events, name: str) -> Event:
    """The next event of this name."""
    while (found := await events.next()).name != name:
        pass
    return found


async def nobody_watches(ask: Asking) -> None:
    """Wait until the last look is over."""
    looking = ask.door.watching._looking
    if looking is not None:
        await looking


async def test_first_there_is_what_the_list_shows_then_each_change(settings: Settings) -> None:
    async with asking(settings) as ask:
        await added(ask.backend, "one")
        listed = (await ask("GET", "/v1/tasks")).json

        async with ask.events("/v1/watch/tasks") as events:
            first = await events.next()
            await added(ask.backend, "two")
            second = await events.next()
            await ask("PUT", "/v1/tasks/two/quota", {"quota": 7}, headers=ANY)
            third = await events.next()
            await ask("POST", "/v1/tasks/two/cancel")
            fourth = await events.next()

        assert (events.status, events.headers["content-type"].partition(";")[0]) == (
            200,
            "text/event-stream",
        )
        assert (events.headers["cache-control"], events.headers["x-accel-buffering"]) == (
            "no-store",
            "no",
        )
        assert (first.name, first.data) == ("snapshot", listed)
        assert [one.name for one in (second, third, fourth)] == ["task"] * 3
        assert (second.data["id"], third.data["quota"]) == ("two", 7)
        assert fourth.data["state"] == "cancelled"
        assert len({one.id for one in (first, second, third, fourth)}) == 4


async def test_one_task_is_watched_until_it_is_forgotten(settings: Settings) -> None:
    async with asking(settings) as ask:
        await added(ask.backend, "one")
        await added(ask.backend, "other")

        async with ask.events("/v1/watch/tasks/one") as events:
            first = await events.next()
            await ask("POST", "/v1/tasks/other/cancel")
            await ask("POST", "/v1/tasks/one/cancel")
            second = await events.next()
            await ask("DELETE", "/v1/tasks/one")
            third = await events.next()

        assert (first.name, first.data["id"]) == ("snapshot", "one")
        assert (second.name, second.data["id"], second.data["state"]) == (
            "task",
            "one",
            "cancelled",
        )
        assert (third.name, third.data) == ("gone", {"id": "one"})


async def test_levels_and_limits_are_told_when_they_change(settings: Settings) -> None:
    async with asking(settings) as ask:
        async with ask.events("/v1/watch/shares") as events:
            first = await events.next()
            await ask("PUT", "/v1/levels", {"weights": "5:4:1"}, headers=ANY)
            levels = await events.next()
            await ask("PATCH", "/v1/limits/app/shop", {"total": 5}, headers=ANY)
            limit = await events.next()
            await ask("DELETE", "/v1/limits/app/shop", headers=ANY)
            gone = await events.next()

        assert first.data["levels"]["high"]["weight"] == 6
        assert first.data["limits"] == []
        assert (levels.name, levels.data["high"]["weight"]) == ("levels", 5)
        assert (limit.name, limit.data["limit"]) == ("limit", {"total": 5})
        assert (gone.name, gone.data) == ("gone", {"subject": "app/shop"})


async def test_a_sink_that_nobody_serves_is_told(settings: Settings) -> None:
    async with asking(settings) as ask:
        async with ask.events("/v1/watch/sinks") as events:
            first = await events.next()
            await added(ask.backend, "one")
            second = await events.next()

        assert (first.name, first.data) == ("snapshot", [])
        assert (second.name, second.data["sink"]) == ("sink", "default")
        assert second.data["state"] == "nobody serves it, 1 task waits"


async def test_a_token_of_apps_is_shown_nothing_of_others(settings: Settings) -> None:
    async with asking(settings) as ask:
        token = await ask.made("viewer", "shop")
        await added(ask.backend, "theirs", "news")
        await ask("PATCH", "/v1/limits/app/news", {"total": 5}, headers=ANY)
        await ask("PATCH", "/v1/limits/theirs", {"total": 5}, headers=ANY)

        async with (
            ask.events("/v1/watch/tasks", token=token) as tasks,
            ask.events("/v1/watch/shares", token=token) as shares,
            ask.events("/v1/watch/tasks") as everything,
        ):
            first = [await tasks.next(), await shares.next(), await everything.next()]
            await added(ask.backend, "theirs-2", "news")
            await ask("PATCH", "/v1/limits/theirs", {"total": 6}, headers=ANY)
            await ask("POST", "/v1/tasks/theirs/cancel")
            await until(everything, "task")
            await added(ask.backend, "ours", "shop")
            await ask("PATCH", "/v1/limits/ours", {"total": 7}, headers=ANY)
            later = [await tasks.next(), await shares.next()]

        assert [one.data for one in first[:2]] == [[], {"limits": []}]
        assert [one.data.get("id", one.data.get("subject")) for one in later] == [
            "ours",
            "task/ours",
        ]


@pytest.mark.parametrize(
    ("path", "query", "status", "told"),
    [
        ("sinks", {}, 403, "list-sinks is about all apps"),
        ("tasks/theirs", {}, 404, "there is no task 'theirs' of an app that you may see"),
        ("tasks", {"app": "news"}, 404, "there is no app 'news' that you may see"),
        (
            "tasks",
            {"state": "paused"},
            400,
            "'state' is not a parameter of this query, which takes `app`",
        ),
        (
            "sinks",
            {"app": "shop"},
            400,
            "'app' is not a parameter of this query, which takes nothing",
        ),
        ("nothing", {}, 404, "GET /v1/watch/nothing"),
    ],
)
async def test_what_may_not_be_watched_is_refused(
    settings: Settings, path: str, query: dict[str, str], status: int, told: str
) -> None:
    async with asking(settings) as ask:
        token = await ask.made("viewer", "shop")
        await added(ask.backend, "theirs", "news")

        answer = await ask("GET", f"/v1/watch/{path}", query=query, token=token)

        assert (answer.status, answer.headers["content-type"]) == (
            status,
            "application/problem+json",
        )
        assert told in answer.json["detail"]
        assert len(ask.door.watching) == 0


async def test_an_app_is_watched_alone(settings: Settings) -> None:
    async with asking(settings) as ask:
        await added(ask.backend, "news-task", "news")

        async with ask.events("/v1/watch/tasks", query={"app": "shop"}) as events:
            first = await events.next()
            await ask("POST", "/v1/tasks/news-task/pause")
            await added(ask.backend, "shop-task", "shop")
            second = await events.next()

        assert (first.data, second.data["id"]) == ([], "shop-task")


async def test_it_goes_on_after_the_last_event_with_what_was_missed(settings: Settings) -> None:
    async with asking(settings) as ask:
        await added(ask.backend, "one")
        async with ask.events("/v1/watch/tasks") as events:
            first = await events.next()
        await nobody_watches(ask)
        await added(ask.backend, "two")

        async with ask.events("/v1/watch/tasks", last_id=first.id) as events:
            missed = await events.next()

        assert (missed.name, missed.data["id"]) == ("task", "two")


@pytest.mark.parametrize("last_id", ["", "0badc0de-1", "no id", "{log}-999", "{log}-", "{log}--1"])
async def test_after_an_event_that_is_not_kept_there_is_a_snapshot(
    settings: Settings, last_id: str
) -> None:
    async with asking(settings) as ask:
        async with ask.events("/v1/watch/tasks") as events:
            first = await events.next()
        given = last_id.format(log=first.id.partition("-")[0])

        async with ask.events("/v1/watch/tasks", last_id=given) as events:
            again = await events.next()

        assert (again.name, again.data) == ("snapshot", [])


async def test_who_hears_nothing_hears_a_heartbeat(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asking(settings) as ask:
        monkeypatch.setattr(watching, "HEARTBEAT_S", 0.01)

        async with ask.events("/v1/watch/tasks") as events:
            names = [(await events.next()).name for _ in range(3)]

        assert names == ["snapshot", "", ""]


async def test_a_stream_ends_when_its_token_is_revoked(settings: Settings) -> None:
    async with asking(settings) as ask:
        token = await ask.made("viewer")
        async with (
            ask.events("/v1/watch/tasks", token=token) as theirs,
            ask.events("/v1/watch/tasks") as ours,
        ):
            await theirs.next()
            await ours.next()
            await do(ask.backend, settings, ADMIN, RevokeToken(token=token.split("_")[1]))
            told, has_ended = await theirs.next(), await theirs.has_ended()
            await added(ask.backend, "one")
            goes_on = await ours.next()

        assert (told.name, told.data["status"], has_ended) == ("problem", 401, True)
        assert "has expired or was revoked" in told.data["detail"]
        assert goes_on.name == "task"


async def test_streams_end_when_the_process_stops(settings: Settings) -> None:
    async with asking(settings) as ask:
        async with ask.events("/v1/watch/tasks") as one, ask.events("/v1/watch/sinks") as other:
            await one.next()
            await other.next()
            ask.door.stopping.set()
            ends = [await one.has_ended(), await other.has_ended()]
        refused = await ask("GET", "/v1/watch/tasks")

        assert ends == [True, True]
        assert (refused.status, refused.json["detail"]) == (503, "this process stops; ask another")


async def test_one_look_is_for_all_and_none_is_made_while_nobody_watches(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asking(settings) as ask:
        looks = 0
        unfinished = watched._unfinished

        async def counted(*args: Any) -> Any:
            nonlocal looks
            looks += 1
            return await unfinished(*args)

        monkeypatch.setattr(watched, "_unfinished", counted)
        gate = asyncio.Event()

        async def waits(self: Any, seconds: float) -> bool:
            return await gate.wait()

        monkeypatch.setattr(watching.Watching, "_stops_within", waits)
        async with AsyncExitStack() as exits:
            streams = [
                await exits.enter_async_context(ask.events("/v1/watch/tasks")) for _ in "12345"
            ]
            first = [await one.next() for one in streams]
            looks_for_all = looks
        gate.set()
        await nobody_watches(ask)

        assert [one.name for one in first] == ["snapshot"] * 5
        assert (looks_for_all, looks) == (1, 1)


async def test_a_store_that_is_away_is_told_and_then_there_is_a_snapshot(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asking(settings) as ask:
        unfinished, is_away = watched._unfinished, False

        async def looked(*args: Any) -> Any:
            if is_away:
                raise Unreachable("the store does not answer")
            return await unfinished(*args)

        monkeypatch.setattr(watched, "_unfinished", looked)
        async with ask.events("/v1/watch/tasks") as events:
            await events.next()
            is_away = True
            told = await events.next()
            refused = await ask("GET", "/v1/watch/tasks")
            is_away = False
            again = await events.next()

        assert (told.name, told.data["status"]) == ("problem", 503)
        assert told.data["detail"] == "the store does not answer"
        assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        assert (again.name, again.data) == ("snapshot", [])


async def test_who_does_not_read_is_cut_off(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asking(settings) as ask:
        monkeypatch.setattr(door_events, "SLOW_S", 0.01)

        async with ask.events("/v1/watch/tasks") as events:
            await events.next()
            events.holds = asyncio.Event()
            await added(ask.backend, "one")
            has_ended = await events.has_ended()

        assert has_ended
        assert len(ask.door.watching) == 0


async def test_who_reads_behind_what_is_kept_is_cut_off(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asking(settings) as ask:
        monkeypatch.setattr(watching, "_MOST_BYTES", 2_000)
        async with ask.events("/v1/watch/tasks") as reader, ask.events("/v1/watch/tasks") as slow:
            await reader.next()
            await slow.next()
            slow.holds = asyncio.Event()
            for n in range(4):
                await added(ask.backend, f"task-{n}")
                await until(reader, "task")
            slow.holds.set()
            held, has_ended = await slow.next(), await slow.has_ended()

        assert (held.data["id"], has_ended) == ("task-0", True)


async def test_there_are_bounds_for_a_token_and_for_a_process(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asking(settings) as ask:
        monkeypatch.setattr(watching, "MOST_OF_TOKEN", 1)
        monkeypatch.setattr(watching, "MOST_STREAMS", 2)
        other, third = await ask.made("viewer"), await ask.made("operator")

        async with ask.events("/v1/watch/tasks") as one:
            await one.next()
            of_token = await ask("GET", "/v1/watch/sinks")
            async with ask.events("/v1/watch/tasks", token=other) as two:
                await two.next()
                of_process = await ask("GET", "/v1/watch/sinks", token=third)

        assert (of_token.status, of_process.status) == (429, 503)
        assert (
            "has 1 watchers at this process, the most that a token may have"
            in of_token.json["detail"]
        )
        assert of_process.json["detail"] == "this process has 2 watchers, the most it takes"


async def test_an_answer_waits_until_the_task_has_ended(settings: Settings) -> None:
    async with asking(settings) as ask:
        await added(ask.backend, "one")

        waiting = asyncio.ensure_future(
            ask("GET", "/v1/tasks/one", headers={"prefer": "respond-async, wait=60"})
        )
        while not len(ask.door.watching):
            await asyncio.sleep(0)
        assert not waiting.done()
        await ask("POST", "/v1/tasks/one/cancel")
        answer = await waiting
        at_once = await ask("GET", "/v1/tasks/one", headers={"prefer": 'wait="60"'})

        assert (answer.json["state"], answer.headers["preference-applied"]) == (
            "cancelled",
            "wait=60",
        )
        assert at_once.json == answer.json
        assert len(ask.door.watching) == 0


@pytest.mark.parametrize(
    ("prefer", "wait_s"),
    [
        ("wait=10", 10),
        ("Wait = 10", 10),
        ("return=minimal; a=b, wait=600", 60),
        ("wait=0", 0),
        ("wait=-1", 0),
        ("wait=soon", 0),
        ("await=10", 0),
        ("", 0),
    ],
)
def test_how_long_an_answer_may_take_is_read_of_its_header(prefer: str, wait_s: int) -> None:
    assert door_events.most_wait_s(prefer) == wait_s


async def test_an_answer_that_waits_is_given_when_its_time_is_over(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asking(settings) as ask:
        monkeypatch.setattr("pushlane.door.app.most_wait_s", lambda prefer: 0.02)
        await added(ask.backend, "one")

        answer = await ask("GET", "/v1/tasks/one", headers={"prefer": "wait=1"})

        assert (answer.status, answer.json["state"]) == (200, "submitted")
        assert len(ask.door.watching) == 0
