"""The view of now, for whom: all apps or some, and what stays of it when something is away."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pushlane import BadInput, MemoryBackend, Settings
from pushlane.backends.backend import Backend
from pushlane.core.errors import Unreachable
from pushlane.core.names import own_lane
from pushlane.core.push import Kind
from pushlane.core.task import Finished, Level, State, Task, now_ms
from pushlane.model.access import Access, Role
from pushlane.model.audit import Entry, write
from pushlane.now import view
from pushlane.operations.doing import do
from pushlane.operations.hour import By, FirstEnd, GetHour, GetTaskHour, TaskHourView
from pushlane.operations.now import GetNow, NowView
from pushlane.operations.session import Caller
from pushlane.operations.shares import SetLevels
from pushlane.operations.tasks import PauseTask
from pushlane.util.errors import UnknownTask

ADMIN = Caller("ada", "cli")


def of_shop(role: Role = Role.VIEWER) -> Caller:
    return Caller("bob", "http", Access(role, frozenset({"shop"})))


class Clock:
    now_s = 50.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(view, "time", clock)
    return clock


async def add(backend: Backend, task_id: str, app: str) -> None:
    task = Task(
        id=task_id,
        level=Level.HIGH,
        lane=own_lane(task_id),
        app=app,
        state=State.RUNNING,
        total=100,
    )
    await backend.registry.add(task)


async def now(backend: Backend, settings: Settings, caller: Caller = ADMIN) -> NowView:
    return await do(backend, settings, caller, GetNow())


async def test_what_goes_is_counted_from_look_to_look(settings: Settings, clock: Clock) -> None:
    async with MemoryBackend().connect() as backend:
        await add(backend, "a", "shop")
        first = await now(backend, settings)
        assert [(one.task, one.left, one.observed_per_s) for one in first.tasks] == [
            ("a", 100, None)
        ]
        await backend.registry.record([Finished("a", Kind.DELIVERED, [*range(1, 31)])])
        assert (await now(backend, settings)).tasks == first.tasks  # one look a second
        clock.now_s += 2
        [one] = (await now(backend, settings)).tasks
        assert (one.left, one.observed_per_s) == (70, 15.0)
        assert (await now(backend, settings)).verdict.command == "pushlane dispatch"


async def test_a_caller_of_an_app_sees_that_alone(settings: Settings, clock: Clock) -> None:
    async with MemoryBackend().connect() as backend:
        await add(backend, "mine", "shop")
        await add(backend, "theirs", "bank")
        await add(backend, "theirs-too", "bank")
        shown = await now(backend, settings, of_shop())
        assert [one.task for one in shown.tasks] == ["mine"]
        assert [(one.app, one.tasks) for one in shown.shares] == [(None, 1), ("shop", 1)]
        assert shown.states == {"waiting": 1}
        assert shown.verdict.text == "100 pushes of 1 task wait: no dispatcher runs."
        assert (await now(backend, settings)).states == {"waiting": 3}


async def test_what_is_away_leaves_the_last_picture(
    settings: Settings, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with MemoryBackend().connect() as backend:
        await add(backend, "a", "shop")

        async def away(*args: Any) -> Any:
            raise Unreachable("the registry does not answer")

        with monkeypatch.context() as patched:
            patched.setattr(backend.registry, "progress", away)
            with pytest.raises(Unreachable):
                await now(backend, settings)
        clock.now_s += 2
        before = await now(backend, settings)
        clock.now_s += 2
        with monkeypatch.context() as patched:
            patched.setattr(backend.registry, "progress", away)
            shown = await now(backend, settings)
            assert (shown.at_ms, shown.tasks) == (before.at_ms, before.tasks)
            assert shown.error == "the registry does not answer"
        clock.now_s += 2
        assert (await now(backend, settings)).error is None


async def test_the_last_hour_has_what_went_and_what_was_changed(
    settings: Settings, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_ms = [10_000_000]
    monkeypatch.setattr(view, "now_ms", lambda: at_ms[0])
    async with MemoryBackend().connect() as backend:
        await add(backend, "a", "shop")
        await add(backend, "b", "bank")
        for step in range(3):
            await now(backend, settings)
            await backend.registry.record(
                [Finished(one, Kind.DELIVERED, [2 * step + 1, 2 * step + 2]) for one in "ab"]
            )
            clock.now_s += 5
            at_ms[0] += 5_000
        await do(backend, settings, ADMIN, SetLevels(weights="5:3:2"))
        whole = await do(backend, settings, ADMIN, GetHour())
        assert [one.per_s for one in whole.points[1:]] == [{"high": 0.8}] * 3
        assert whole.since_ms == 10_000_000
        mine = await do(backend, settings, of_shop(Role.OPERATOR), GetHour(by=By.APP))
        assert [one.per_s for one in mine.points[1:]] == [{"shop": 0.4}] * 3
        assert mine.marks == []  # weights are of all apps


async def test_marks_are_for_operators(settings: Settings, clock: Clock) -> None:
    async with MemoryBackend().connect() as backend:
        await do(backend, settings, ADMIN, SetLevels(weights="5:3:2"))
        look = Entry(now_ms(), "ada", "cli", "get-push", "push/a-1", {}, {"revealed": "content"})
        await write(backend.documents, look)  # which is no change
        [mark] = (await do(backend, settings, ADMIN, GetHour())).marks
        assert (mark.who, mark.operation, mark.subject) == ("ada", "set-levels", "levels")
        looks_on = Caller("eve", "http", Access(Role.VIEWER))
        assert (await do(backend, settings, looks_on, GetHour())).marks == []


async def test_what_holds_is_in_the_last_hour_since_it_was_seen(
    settings: Settings, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_ms = [10_000_000]
    monkeypatch.setattr(view, "now_ms", lambda: at_ms[0])

    async def later(backend: Backend, seconds: int) -> NowView:
        clock.now_s += seconds
        at_ms[0] += seconds * 1000
        return await now(backend, settings)

    async with MemoryBackend().connect() as backend:
        await add(backend, "a", "shop")
        await add(backend, "b", "bank")
        [first] = (await now(backend, settings)).held
        assert (first.kind, first.since_ms, first.may_begin_sooner) == (
            "unserved",
            10_000_000,
            True,
        )
        await later(backend, 10)
        await backend.registry.change("b", lambda task: replace(task, state=State.PAUSED))
        [_, paused] = (await later(backend, 10)).held
        assert (paused.kind, paused.since_ms, paused.may_begin_sooner) == (
            "paused",
            10_020_000,
            False,
        )
        await backend.registry.change("b", lambda task: replace(task, state=State.RUNNING))
        await later(backend, 10)
        whole = await do(backend, settings, ADMIN, GetHour())
        assert [(one.what, one.from_ms, one.until_ms) for one in whole.spans] == [
            ("", 10_000_000, None),
            ("task/b", 10_020_000, 10_020_000),
        ]
        mine = await do(backend, settings, of_shop(), GetHour())
        assert [one.what for one in mine.spans] == [""]


async def test_the_share_of_a_task_is_kept_with_what_bears_on_it(
    settings: Settings, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_ms = [10_000_000]
    monkeypatch.setattr(view, "now_ms", lambda: at_ms[0])
    async with MemoryBackend().connect() as backend:
        await add(backend, "a", "shop")
        await add(backend, "b", "bank")

        async def later(seconds: int) -> None:
            clock.now_s += seconds
            at_ms[0] += seconds * 1000
            await now(backend, settings)

        async def share(task: str, caller: Caller = ADMIN) -> TaskHourView:
            return await do(backend, settings, caller, GetTaskHour(task=task))

        assert [one.observed_per_s for one in (await share("a")).points] == [None]
        await later(1)
        await backend.registry.record([Finished("a", Kind.DELIVERED, [1, 2])])
        await later(4)
        await do(backend, settings, ADMIN, SetLevels(weights="5:3:2"))
        for task in "ba":
            await do(backend, settings, ADMIN, PauseTask(task=task))
        await later(5)

        mine = await share("a")
        assert [(one.at_ms, one.observed_per_s) for one in mine.points] == [
            *((10_000_000, None), (10_005_000, 0.4), (10_010_000, 0.2)),
        ]
        assert mine.points[-1].entitled_per_s is None  # nobody serves its sink
        assert mine.first_end == FirstEnd(10_001_000, 10_005_000)
        assert [(one.what, one.kind) for one in mine.spans] == [
            *(("", "unserved"), ("task/a", "paused"))
        ]
        made = [one.subject for one in mine.marks]
        assert made == ["task/a", "levels"]
        assert (await share("b")).first_end is None
        assert (await share("a", of_shop())).marks == []
        with pytest.raises(UnknownTask):
            await share("b", of_shop())


def test_lines_are_by_level_or_app() -> None:
    with pytest.raises(BadInput):
        GetHour.made(by="sink")
