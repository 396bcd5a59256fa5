"""What the sender of a spool puts on a lane: each push once, whatever was there before it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as with_other

from pushlane.backends.backend import Backend, connect
from pushlane.backends.formats import set_min_format
from pushlane.backends.ports import FoundTasks
from pushlane.core.errors import TaskConflict
from pushlane.core.names import own_lane, pool_lane
from pushlane.core.publish import Ended
from pushlane.core.push import Push, decode, encode
from pushlane.core.task import Level, Task
from pushlane.producers.outbox.sender import Sender
from pushlane.producers.outbox.spool import Spool, SpoolFolder
from pushlane.producers.outbox.store import Added, Batch, Header
from pushlane.settings import Settings
from pushlane.util.errors import UnknownTask
from pushlane.wire import bodies_of
from tests.core.support import Wrapped

TASK = Task(id="t", level=Level.HIGH, lane=own_lane("t"), first_lane=own_lane("t"))
POOLED = Task(id="t", level=Level.LOW, lane=pool_lane("t", 1), first_lane=pool_lane("t", 1))


def batch(first: int, last: int) -> Batch:
    return Batch(first, [encode(Push("t", seq, f"to-{seq}")) for seq in range(first, last + 1)])


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[SpoolFolder]:
    with closing(SpoolFolder(tmp_path / "spool")) as folder:
        yield folder


class Killed(Exception):
    """The process ends here."""


def killed(batch: Batch) -> None:
    raise Killed


async def send(settings: Settings, spool: Spool) -> None:
    """All that is in the spool."""
    unheard: Callable[[Any], None] = lambda what: None  # noqa: E731
    await Sender(settings, spool, None, unheard, unheard, lambda: True, asyncio.Event()).run()


async def messages(settings: Settings, lane: str) -> list[bytes]:
    async with connect(settings) as backend:
        return [body async for page in backend.broker.replay(lane) for body in page]


def seqs_in(message: bytes) -> list[int]:
    return [decode(body).seq for body in bodies_of(message)]


async def test_pushes_go_in_bundles_of_the_size_that_the_spool_began_with(settings, folder) -> None:
    spool = folder.begin(Header(TASK, 8), [batch(1, 8), batch(9, 16), batch(17, 20)])

    await send(settings.but(batch=500), spool)

    sizes = [len(seqs_in(message)) for message in await messages(settings, TASK.lane)]
    assert sizes == [8, 8, 4]


async def test_pushes_go_alone_where_older_processes_are_to_read_them(settings, folder) -> None:
    async with connect(settings) as backend:
        await set_min_format(backend.documents, backend.presence, 1)
    spool = folder.begin(Header(TASK, 8), [batch(1, 8), batch(9, 12)])

    await send(settings, spool)

    found = await messages(settings, TASK.lane)
    assert found == batch(1, 12).bodies


async def test_a_task_that_a_version_before_0_2_0_began_is_refused_and_its_spool_kept(
    settings, folder
) -> None:
    """It numbered messages in another way: what it published would be published again."""
    async with connect(settings) as backend:
        await backend.registry.add(TASK)
        await backend.broker.open_lane(TASK.lane)
    spool = folder.begin(Header(TASK, 8), [batch(1, 8)])

    with pytest.raises(TaskConflict, match=r"before 0\.2\.0.*end its submit with release 0\.2\.0"):
        await send(settings, spool)

    assert await messages(settings, TASK.lane) == []
    assert spool.waiting == 8


@pytest.mark.parametrize("bundle", [1, 7, 32])
async def test_a_batch_that_is_sent_again_with_others_behind_it_is_in_the_same_bundles(
    settings, tmp_path, monkeypatch, bundle: int
) -> None:
    """Bundles of a pool lane are smaller than the batches of the spool, and end elsewhere."""
    async with connect(settings) as backend:
        await backend.registry.add(with_other(POOLED, bundle=bundle))
    with closing(SpoolFolder(tmp_path / "spool")) as folder:
        spool = folder.begin(Header(POOLED, 50), [batch(1, 50)])
        monkeypatch.setattr(spool, "ack", killed)
        with pytest.raises(Killed):
            await send(settings, spool)

    with closing(SpoolFolder(tmp_path / "spool")) as folder:
        [spool] = folder.spools
        spool.append([batch(51, 100)], 1_000_000)
        await send(settings, spool)

    found = [seqs_in(message) for message in await messages(settings, POOLED.lane)]
    assert [seq for seqs in found for seq in seqs] == list(range(1, 101))
    assert max(map(len, found)) == bundle


async def seqs_on_lane(settings: Settings) -> list[int]:
    return [seq for message in await messages(settings, TASK.lane) for seq in seqs_in(message)]


class Losing(Wrapped):
    """A registry that has lost the task, and may have it again; `adds` are those it was given."""

    def __init__(self, real: Any, *, knows_it_is_gone: bool) -> None:
        super().__init__(real)
        self._knows_it_is_gone = knows_it_is_gone
        self.is_lost = True
        self.asked = asyncio.Event()
        self.adds: list[Task] = []

    async def add(self, task: Task) -> Task:
        self.adds.append(task)
        added: Task = await self._real.add(task)
        return added

    async def get(self, task_id: str) -> Task:
        if self.is_lost and not self.adds:
            raise UnknownTask(f"there is no task {task_id}")
        found: Task = await self._real.get(task_id)
        return found

    async def find_out(self, task_ids: Sequence[str]) -> FoundTasks:
        if not self.is_lost or self.adds:
            found: FoundTasks = await self._real.find_out(task_ids)
            return found
        self.asked.set()
        return FoundTasks([], (), task_ids if self._knows_it_is_gone else ())


@pytest.fixture
def losing(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Losing]]:
    def begin(**options: bool) -> list[Losing]:
        made: list[Losing] = []

        @asynccontextmanager
        async def connect_losing(_: Settings) -> AsyncIterator[Backend]:
            async with connect(settings) as backend:
                made.append(Losing(backend.registry, **options))
                yield replace(backend, registry=made[0])

        monkeypatch.setattr("pushlane.producers.outbox.sender.connect", connect_losing)
        return made

    return begin


async def test_a_new_task_is_added_without_finding_out_about_it(settings, folder, losing) -> None:
    made = losing(knows_it_is_gone=False)
    spool = folder.begin(Header(TASK, 8, added=Added.NO), [batch(1, 8)])

    await send(settings, spool)

    assert [task.id for task in made[0].adds] == [TASK.id]
    assert not made[0].asked.is_set()
    assert spool.header.added is Added.YES
    assert await seqs_on_lane(settings) == list(range(1, 9))


@pytest.mark.parametrize("added", [Added.UNKNOWN, Added.BEGUN, Added.YES])
async def test_one_that_may_have_been_added_is_waited_for_and_not_added_again(
    settings, folder, losing, added: Added
) -> None:
    async with connect(settings) as backend:
        await backend.registry.add(with_other(TASK, bundle=8))
    made = losing(knows_it_is_gone=False)
    spool = folder.begin(Header(TASK, 8, added=added), [batch(1, 8)])

    sending = asyncio.create_task(send(settings, spool))
    while not made:
        await asyncio.sleep(0)
    await made[0].asked.wait()
    made[0].is_lost = False
    await sending

    assert made[0].adds == []
    assert await seqs_on_lane(settings) == list(range(1, 9))


@pytest.mark.parametrize("added", [Added.UNKNOWN, Added.BEGUN])
async def test_one_whose_add_never_ended_is_added(settings, folder, losing, added: Added) -> None:
    made = losing(knows_it_is_gone=True)
    spool = folder.begin(Header(TASK, 8, added=added), [batch(1, 8)])

    await send(settings, spool)

    assert [task.id for task in made[0].adds] == [TASK.id]


async def test_one_that_was_added_and_forgotten_is_not_sent_again(settings, folder, losing) -> None:
    made = losing(knows_it_is_gone=True)
    spool = folder.begin(Header(TASK, 8, added=Added.YES), [batch(1, 8)])

    with pytest.raises(Ended, match="forgotten"):
        await send(settings, spool)

    assert made[0].adds == []


async def test_one_of_which_something_was_sent_is_not_added_again(settings, folder, losing) -> None:
    made = losing(knows_it_is_gone=True)
    spool = folder.begin(Header(TASK, 8), [batch(1, 8), batch(9, 16)])
    spool.ack(spool.next()[0])

    with pytest.raises(Ended, match="forgotten"):
        await send(settings, spool)

    assert made[0].adds == []
