"""The search among all tasks: what it finds, in which order, how many, and for whom."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from pushlane import BadInput, MemoryBackend, Settings
from pushlane.backends.backend import Backend
from pushlane.core.names import own_lane
from pushlane.core.push import Kind
from pushlane.core.task import Finished, Level, State, Task, now_ms
from pushlane.model.access import Access, Role
from pushlane.model.due import QUARTER_MS, PutOff
from pushlane.model.presence import Process, ServedSink
from pushlane.operations import finding
from pushlane.operations.doing import do
from pushlane.operations.finding import SORTS, FindTasks, FoundPage
from pushlane.operations.session import Beside, Caller
from pushlane.operations.tasks import ListTasks, PauseTask

DISPATCHER = Process(
    id="d1",
    kind="dispatcher",
    pid=7,
    version="1",
    started_at_ms=10_000,
    serves=("default",),
    served=(ServedSink(name="default"),),
)
ADMIN = Caller("ada", "cli")


def task(task_id: str, **fields: Any) -> Task:
    made = Task(
        id=task_id,
        level=Level.HIGH,
        lane=own_lane(task_id),
        state=State.RUNNING,
        total=100,
        created_at_ms=now_ms(),
    )
    return replace(made, **fields)


async def find(
    backend: Backend, caller: Caller = ADMIN, beside: Beside | None = None, **asked: Any
) -> FoundPage:
    return await do(backend, Settings(), caller, FindTasks.made(**asked), beside=beside)


def ids(page: FoundPage) -> list[str]:
    return [one.id for one in page.tasks]


async def fill(backend: Backend) -> None:
    for number, one in enumerate(
        (
            task("a", name="Summer sale", app="shop", quota=5, level=Level.LOW),
            task("b", key="shop/autumn", app="shop", sinks=("fcm", "sms"), total=20),
            task("c", name="bills", app="bank", quota=3, total=None, left_with=7),
            task("d", name="old sale", app="shop", state=State.DONE, finished_at_ms=7),
        )
    ):
        await backend.registry.add(replace(one, created_at_ms=1_000 + number))
    await backend.registry.record([Finished("a", Kind.DELIVERED, list(range(1, 91)))])


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, ["c", "b", "a"]),
        ({"state": "any"}, ["d", "c", "b", "a"]),
        ({"state": "done"}, ["d"]),
        ({"find": "SALE", "state": "any"}, ["d", "a"]),
        ({"find": "autumn"}, ["b"]),
        ({"app": "bank"}, ["c"]),
        ({"level": "low"}, ["a"]),
        ({"sink": "fcm"}, ["b"]),
        ({"sink": "sms"}, []),
        ({"sort": "created"}, ["a", "b", "c"]),
        ({"sort": "name"}, ["b", "c", "a"]),
        ({"sort": "-quota"}, ["a", "c", "b"]),
        ({"sort": "left"}, ["a", "b", "c"]),
        ({"sort": "-left"}, ["b", "a", "c"]),
        ({"sort": "level"}, ["b", "c", "a"]),
        ({"sort": "total"}, ["b", "a", "c"]),
    ],
    ids=str,
)
async def test_it_finds_what_fits_in_the_order_that_is_asked_for(
    asked: dict[str, Any], found: list[str]
) -> None:
    async with MemoryBackend().connect() as backend:
        await fill(backend)
        page = await find(backend, **asked)

    assert ids(page) == found
    assert page.in_all == len(found)
    assert page.error is None


async def test_a_row_is_as_the_list_has_it() -> None:
    async with MemoryBackend().connect() as backend:
        await fill(backend)
        found = await find(backend, state="any", sort="created")
        listed = await do(backend, Settings(), ADMIN, ListTasks.made(state="any"))

    assert found.tasks == listed


@pytest.mark.parametrize("word", ["scheduled", "waiting", "resting", "failing", "stalled"])
async def test_it_filters_by_how_tasks_are_shown_as_the_list_does(word: str) -> None:
    at_ms = now_ms()
    async with MemoryBackend().connect() as backend:
        for one in (
            task("starts", not_before_ms=at_ms + 3_600_000),
            task("waits"),
            task("rests", has_later=True, total=2),
            task("fails"),
            task("half", total=None, stalled_at_ms=at_ms - 60_000, created_at_ms=at_ms - 90_000),
            task("ended", state=State.DONE),
        ):
            await backend.registry.add(one)
        again_ms = at_ms + 3_600_000
        put_off = PutOff("rests", "quiet_hours", again_ms // QUARTER_MS, 2, again_ms, again_ms)
        await backend.registry.put_off([put_off])
        await backend.registry.record(
            [Finished("fails", Kind.DEAD, list(range(1, 51)), "HTTP 410")]
        )
        if word != "waiting":
            await backend.presence.announce(DISPATCHER, 60.0)
        listed = await do(backend, Settings(), ADMIN, ListTasks.made(state=word))
        found = await find(backend, state=word, sort="created")

    assert sorted(ids(found)) == sorted(one.id for one in listed)
    assert {one.shown_state for one in listed} == {word}


@pytest.mark.parametrize("sort", SORTS)
async def test_of_very_many_the_first_are_the_same(
    sort: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with MemoryBackend().connect() as backend:
        await fill(backend)
        few = [ids(await find(backend, state="any", sort=sort, limit=n)) for n in (1, 2, 3)]
        monkeypatch.setattr(finding, "_MANY", 0)
        many = [ids(await find(backend, state="any", sort=sort, limit=n)) for n in (1, 2, 3)]

    assert few == many


@pytest.mark.parametrize("sort", SORTS)
async def test_its_pages_are_the_whole(sort: str) -> None:
    async with MemoryBackend().connect() as backend:
        await fill(backend)
        whole = ids(await find(backend, state="any", sort=sort))
        pages, cursor = [], ""
        for _ in whole:
            beside = Beside()
            asked: dict[str, Any] = {"state": "any", "sort": sort, "limit": 1, "cursor": cursor}
            page = await find(backend, beside=beside, **asked)
            assert page.in_all == 4
            pages += ids(page)
            cursor = beside.next

    assert pages == whole
    assert sorted(whole) == ["a", "b", "c", "d"]
    assert not cursor


async def test_who_sees_some_apps_finds_and_counts_theirs() -> None:
    caller = Caller("eve", "http", Access(Role.VIEWER, frozenset(["bank"])))
    async with MemoryBackend().connect() as backend:
        await fill(backend)
        page = await find(backend, caller, state="any")

    assert (ids(page), page.in_all) == (["c"], 1)


async def test_a_change_is_found_at_once() -> None:
    async with MemoryBackend().connect() as backend:
        await fill(backend)
        await find(backend)
        await do(backend, Settings(), ADMIN, PauseTask(task="a"))
        await backend.registry.add(task("new"))

        assert ids(await find(backend, state="paused")) == ["a"]
        assert ids(await find(backend, state="running", sort="name")) == ["b", "new", "c"]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"sort": "colour"}, "unknown sort 'colour'"),
        ({"state": "gone"}, "unknown state 'gone'"),
        ({"cursor": "x"}, "cursor is not one"),
    ],
)
async def test_what_is_no_such_word_is_refused(asked: dict[str, str], told: str) -> None:
    async with MemoryBackend().connect() as backend:
        with pytest.raises(BadInput, match=told):
            await find(backend, ADMIN, None, **asked)
        strict = msgspec.convert(asked | {"state": [asked.get("state", "any")]}, FindTasks)
        with pytest.raises(BadInput, match=told):  # over HTTP, where it is only converted
            await do(backend, Settings(), ADMIN, strict)
