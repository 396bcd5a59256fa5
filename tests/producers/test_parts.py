"""A submit in parts: its first rows, then the rest under the same key, and each push once."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pushlane.backends.backend import Backend
from pushlane.backends.memory import MemoryBackend
from pushlane.core.errors import BadInput, TaskConflict
from pushlane.core.task import Level, State, Task
from pushlane.model import task_changes
from pushlane.model.names import PARTS
from pushlane.producers.request import SubmitRequest, Submitted
from pushlane.producers.submit import submit
from pushlane.producers.task_builder import task_of_key
from pushlane.settings import Settings
from pushlane.wire import open_message
from tests.core.support import Wrapped

KEY = "sale"


class Killed(Exception):
    """The process ends here."""


@dataclass
class Kill:
    """Ends the process at the call of this number, before or after it has done its work."""

    calls_left: int = 10**9
    is_after: bool = False

    async def around(self, call: Callable[[], Awaitable[Any]]) -> Any:
        self.calls_left -= 1
        is_here = self.calls_left == 0
        if is_here and not self.is_after:
            raise Killed
        result = await call()
        if is_here:
            raise Killed
        return result


class Killing(Wrapped):
    """A port of which some calls may end the process. A broker that `forgets` knows no source."""

    def __init__(self, real: Any, kill: Kill, names: set[str], *, forgets: bool = False) -> None:
        super().__init__(real)
        self._kill = kill
        self._names = names
        self._forgets = forgets

    def __getattr__(self, name: str) -> Any:
        method = super().__getattr__(name)
        if name not in self._names:
            return method

        async def call(*args: Any, **options: Any) -> Any:
            if self._forgets:
                options.pop("source", None)
            return await self._kill.around(lambda: method(*args, **options))

        return call


@dataclass
class Scene:
    """A store in memory, and a file of so many rows."""

    backend: Backend
    settings: Settings
    rows: int
    forgets: bool = False

    async def submit(
        self, first: int | None = None, kill: Kill | None = None, **options: Any
    ) -> Submitted:
        source = [{"recipient": f"to-{number}"} for number in range(1, self.rows + 1)]
        given = {"level": Level.HIGH, "title": "Hi", "key": KEY, **options}
        request = SubmitRequest(source=source, first=first, **given)
        return await submit(self._killed_by(kill or Kill()), self.settings, request)

    def _killed_by(self, kill: Kill) -> Backend:
        one = self.backend
        return dataclasses.replace(
            one,
            broker=Killing(one.broker, kill, {"publish"}, forgets=self.forgets),  # type: ignore[arg-type]
            documents=Killing(one.documents, kill, {"put", "remove"}),  # type: ignore[arg-type]
            registry=Killing(one.registry, kill, {"change"}),  # type: ignore[arg-type]
        )

    async def seqs(self) -> list[int]:
        """The seqs of the task on its lane, in their order there; none while there is no task."""
        task = await task_of_key(self.backend, KEY)
        if task is None:
            return []
        pages = self.backend.broker.replay(task.first_lane)
        return [
            seq async for page in pages for message in page for seq in open_message(message).seqs
        ]

    async def task(self) -> Task:
        return await self.backend.registry.get(KEY)


@asynccontextmanager
async def scene(rows: int, batch: int = 4, *, forgets: bool = False) -> AsyncIterator[Scene]:
    given: dict[str, Any] = {"batch": batch}
    if forgets:
        given |= {"broker": "pulsar://unused", "dedup_window_s": 0.001}
    async with MemoryBackend().connect() as backend:
        yield Scene(backend, Settings(**given), rows, forgets)


def up_to(count: int) -> list[int]:
    return list(range(1, count + 1))


async def test_the_first_rows_go_and_the_task_stays_open() -> None:
    async with scene(rows=25) as here:
        result = await here.submit(first=10)

        assert await here.seqs() == up_to(10)
        assert (result.published, result.part, result.accepted) == (10, 10, 25)
        assert (result.task.state, result.task.total) == (State.RUNNING, None)


async def test_the_same_without_first_goes_on_with_the_rest() -> None:
    async with scene(rows=25) as here:
        first = await here.submit(first=10)
        result = await here.submit()

        assert await here.seqs() == up_to(25)
        assert result.task.id == first.task.id
        assert (result.published, result.resumed, result.part) == (15, True, None)
        assert (result.task.total, await here.backend.documents.list(PARTS)) == (25, [])


@pytest.mark.parametrize("again", [10, 5, 1])
async def test_no_more_than_before_is_nothing_new(again: int) -> None:
    async with scene(rows=25) as here:
        await here.submit(first=10)
        result = await here.submit(first=again)

        assert await here.seqs() == up_to(10)
        assert (result.published, result.part) == (0, 10)


async def test_more_than_before_adds_what_lies_between() -> None:
    async with scene(rows=25) as here:
        await here.submit(first=3)
        result = await here.submit(first=10)

        assert await here.seqs() == up_to(10)
        assert (result.published, result.part) == (7, 10)


@pytest.mark.parametrize("first", [25, 26, 10**9])
async def test_as_many_as_there_are_or_more_are_all_and_seal_nothing(first: int) -> None:
    async with scene(rows=25) as here:
        result = await here.submit(first=first)
        assert (await here.seqs(), result.part, result.task.total) == (up_to(25), 25, None)

        whole = await here.submit()
        assert (await here.seqs(), whole.published, whole.task.total) == (up_to(25), 0, 25)


async def test_once_all_is_submitted_the_first_are_there_already() -> None:
    async with scene(rows=25) as here:
        whole = await here.submit()
        result = await here.submit(first=5)

        assert (result.already_done, result.task, result.published) == (True, whole.task, 0)
        assert result.part is None


async def test_behind_a_whole_submit_that_stopped_no_first_rows_can_be_told_apart() -> None:
    async with scene(rows=25) as here:
        with pytest.raises(Killed):
            await here.submit(kill=Kill(3, is_after=True))  # format, start, publish
        with pytest.raises(TaskConflict, match=r"begun and stopped half-way.*without --first"):
            await here.submit(first=30)

        assert await here.seqs() == up_to(25)


async def test_fewer_than_a_part_that_was_cut_off_are_refused_as_more_may_be_there() -> None:
    async with scene(rows=25) as here:
        with pytest.raises(Killed):
            await here.submit(first=10, kill=Kill(3))  # format, part, start
        with pytest.raises(TaskConflict, match="go on with --first 10, or without"):
            await here.submit(first=5)

        assert await here.seqs() == []


async def test_a_task_that_is_forgotten_leaves_no_part_behind() -> None:
    async with scene(rows=25) as here:
        result = await here.submit(first=10)
        await here.backend.registry.change(result.task.id, task_changes.cancel)
        assert len(await here.backend.documents.list(PARTS)) == 1
        assert await here.backend.forget(await here.task())

        assert await here.backend.documents.list(PARTS) == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"first": 3}, "--first 3 needs a --key: by that the same command without"),
        ({"first": 0, "key": "k"}, "first 0 is below 1; to look at rows and send none: --dry-run"),
        ({"first": "many", "key": "k"}, "first 'many' is not a whole number"),
        ({"first": 3, "key": "k", "test_to": "a@b"}, "leave one of the two out"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        SubmitRequest(source=[], level=Level.HIGH, **options)


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("calls", range(1, 8))
@pytest.mark.parametrize("then", [6, 11, None])
async def test_a_part_that_is_cut_off_anywhere_is_gone_on_with(
    calls: int, is_after: bool, then: int | None
) -> None:
    """Also where the end of the part, which is in the midst of a bundle, was not noted."""
    async with scene(rows=13) as here:
        with suppress(Killed):
            await here.submit(first=5, kill=Kill(calls, is_after=is_after))
        await here.submit(first=then)
        assert await here.seqs() == up_to(then or 13)

        await here.submit()
        assert await here.seqs() == up_to(13)


firsts = st.none() | st.integers(1, 45)
kills = st.builds(Kill, st.integers(1, 14) | st.just(10**9), st.booleans())
runs = st.lists(st.tuples(firsts, kills), max_size=6)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(1, 40),
    batch=st.integers(1, 7),
    chunk=st.integers(1, 20),
    runs=runs,
    forgets=st.booleans(),
)
def test_each_push_goes_once_and_in_order_wherever_a_submit_was_cut_off(
    rows: int,
    batch: int,
    chunk: int,
    runs: list[tuple[int | None, Kill]],
    forgets: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever parts were asked for, none goes beyond the furthest."""

    async def work() -> None:
        async with scene(rows, batch, forgets=forgets) as here:
            most = 0
            for first, kill in runs:
                kill = dataclasses.replace(kill)
                most = max(most, min(rows, first or rows))
                with suppress(Killed, TaskConflict):
                    await here.submit(first, kill)
                    if first is None:
                        assert (await here.task()).total == rows
                seqs = await here.seqs()
                assert seqs == up_to(len(seqs))
                assert len(seqs) <= most
            result = await here.submit()

            assert await here.seqs() == up_to(rows)
            assert result.task.total == rows

    monkeypatch.setattr("pushlane.core.publish._CHUNK_ROWS", chunk)
    later_ms = task_changes.now_ms() + 3_600_000
    monkeypatch.setattr("pushlane.producers.submit.now_ms", lambda: later_ms)
    asyncio.run(work())
