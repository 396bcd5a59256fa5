"""The one way to put a task's pushes on its lane: what it does for one that ends meanwhile."""

from __future__ import annotations

from dataclasses import replace as with_other
from pathlib import Path

import pytest

from pushlane.backends.backend import Backend
from pushlane.core.names import own_lane
from pushlane.core.publish import Ended, Publication
from pushlane.core.push import Push, encode
from pushlane.core.task import Level, State, Task
from pushlane.model import task_changes
from pushlane.producers.published import announcing
from pushlane.wire import bodies_of, packed
from tests.core.support import Wrapped, backend_in


async def add(backend: Backend, bundle: int = 1) -> Task:
    task = Task(id="a", level=Level.HIGH, lane=own_lane("a"), bundle=bundle)
    return await backend.registry.add(task)


def bodies(first: int, last: int) -> list[bytes]:
    return [encode(Push("a", n, f"to-{n}", collapse="cart")) for n in range(first, last + 1)]


async def test_a_task_is_opened_published_and_sealed(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        publication = Publication(backend, await add(backend))

        opened = await publication.open()
        await publication.publish(bodies(1, 3), "submit-a")
        await publication.publish(bodies(1, 3), "submit-a")
        sealed = await publication.seal(3)

        assert (opened.state, opened.total, sealed.total) == (State.RUNNING, None, 3)
        assert await backend.broker.backlog(own_lane("a")) == 3


async def test_a_hidden_one_runs_from_the_seal_on(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        publication = Publication(backend, await add(backend), hidden=True)

        opened = await publication.open()
        sealed = await publication.seal(0)

        assert (opened.state, sealed.state) == (State.SUBMITTED, State.RUNNING)


@pytest.mark.parametrize("step", ["open", "publish", "seal"])
async def test_no_step_goes_on_for_one_that_has_ended(tmp_path: Path, step: str) -> None:
    async with backend_in(tmp_path) as (backend, _):
        publication = Publication(backend, await add(backend), advice="do it again")
        if step != "open":
            await publication.open()
        await backend.registry.change("a", task_changes.cancel)
        steps = {
            "open": publication.open,
            "publish": lambda: publication.publish(bodies(1, 1), "submit-a"),
            "seal": lambda: publication.seal(1),
        }

        with pytest.raises(Ended, match="a is cancelled: the rest is never sent; do it again"):
            await steps[step]()

        assert (await backend.registry.get("a")).total is None


class RecipientWindows(Wrapped):
    """Notes how many were announced."""

    announced = 0

    async def announce(self, marks: list[object]) -> None:
        self.announced += len(marks)


async def test_what_is_known_to_be_there_is_announced_and_not_published(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task = await add(backend)
        marks = RecipientWindows(backend.recipient_windows)
        told = with_other(backend, recipient_windows=marks)
        publication = Publication(told, task, announce=announcing(told, True))
        await publication.open()

        await publication.publish(bodies(1, 3), "submit-a", known=2)
        await publication.publish(bodies(4, 5), "submit-a", known=2)

        assert await backend.broker.backlog(own_lane("a")) == 1
        assert (marks.announced, publication.published) == (5, 1)


async def on_lane(backend: Backend) -> list[list[bytes]]:
    """The pushes of each message."""
    pages = [page async for page in backend.broker.replay(own_lane("a"))]
    return [list(bodies_of(message)) for page in pages for message in page]


async def test_pushes_go_in_bundles_of_the_tasks_size(tmp_path: Path) -> None:
    async with backend_in(tmp_path) as (backend, _):
        publication = Publication(backend, await add(backend, bundle=4))
        await publication.open()

        for _ in range(2):
            await publication.publish(bodies(1, 10), "submit-a")
        await publication.publish(bodies(11, 13), "submit-a")

        expected = [bodies(1, 4), bodies(5, 8), bodies(9, 10), bodies(11, 12), bodies(13, 13)]
        assert await on_lane(backend) == expected


async def test_bundles_that_were_packed_before_are_published_once_and_announced(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, _):
        task = await add(backend, bundle=4)
        marks = RecipientWindows(backend.recipient_windows)
        told = with_other(backend, recipient_windows=marks)
        publication = Publication(told, task, announce=announcing(told, True))
        await publication.open()
        bundles = list(packed(bodies(1, 10), 4))

        await publication.publish_packed(bundles[:2], "part-a")
        await publication.publish_packed(bundles, "part-a")

        assert await on_lane(backend) == [bodies(1, 4), bodies(5, 8), bodies(9, 10)]
        assert (marks.announced, publication.published) == (18, 18)


async def test_what_is_behind_the_known_is_in_bundles_that_end_where_they_always_do(
    tmp_path: Path,
) -> None:
    async with backend_in(tmp_path) as (backend, _):
        publication = Publication(backend, await add(backend, bundle=4))
        await publication.open()

        await publication.publish(bodies(1, 10), "submit-a", known=3)

        assert await on_lane(backend) == [bodies(4, 4), bodies(5, 8), bodies(9, 10)]
