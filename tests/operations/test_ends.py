"""Each push of a task, one by one: in pages, for whom, and with which hashes."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Any

import msgspec
import pytest

from pushlane import BadInput, Client, MemoryBackend, Settings
from pushlane.backends.backend import Backend
from pushlane.model.access import Access, Role
from pushlane.model.read_bounds import ReadBounds
from pushlane.operations.doing import do
from pushlane.operations.ends import EndView, HashRecipients, ListEnds
from pushlane.operations.long_reads import LongReads
from pushlane.operations.paging import _question
from pushlane.operations.session import Beside, Caller
from pushlane.operations.views import plain
from pushlane.util.errors import NotAllowed, UnknownTask
from tests.door.asking import asking
from tests.operations.test_looks import ADMIN, deliver, filled, of_shop
from tests.receipt_bodies import body


@pytest.fixture
def memory() -> MemoryBackend:
    return MemoryBackend()


async def pages(
    backend: Backend, settings: Settings, asked: ListEnds, bounds: ReadBounds | None = None
) -> list[list[EndView]]:
    """All pages of a list, each asked for with the cursor of the one before."""
    found = []
    while True:
        beside, reads = Beside(), LongReads(bounds or ReadBounds())
        found.append(await do(backend, settings, ADMIN, asked, beside=beside, reads=reads))
        if not beside.next:
            return found
        asked = msgspec.structs.replace(asked, cursor=beside.next)


async def test_each_push_that_has_ended_is_there_and_nobody_in_the_clear(
    memory: MemoryBackend, settings: Settings
) -> None:
    async with filled(memory, settings) as backend:
        await deliver(memory, settings)
        ends = await do(backend, settings, of_shop(), ListEnds(task="of-shop"))

    assert sorted((one.seq, one.outcome) for one in ends) == [
        (1, "delivered"),
        (2, "dead"),
        (3, "delivered"),
    ]
    assert "user-" not in str(plain(ends))
    assert "recipient_hash" not in str(plain(ends))


@pytest.mark.parametrize("limit", [1, 2, 7, 1_000])
async def test_pages_have_each_row_once(
    memory: MemoryBackend, settings: Settings, limit: int
) -> None:
    async with filled(memory, settings) as backend:
        task = await backend.registry.get("of-shop")
        at_ms = task.created_at_ms
        for first in range(1, 40, 3):
            seqs = range(first, first + 3)
            await backend.receipts.append(
                [body(task.id, seqs, at_ms=at_ms), body("other", seqs, at_ms=at_ms)]
            )
        found = await pages(backend, settings, ListEnds(task=task.id, limit=limit))

    assert all(len(page) <= limit for page in found)
    assert sorted(one.seq for page in found for one in page) == [*range(1, 40)]


async def test_a_page_that_runs_out_of_time_goes_on_all_the_same(
    memory: MemoryBackend, settings: Settings
) -> None:
    async with filled(memory, settings) as backend:
        task = await backend.registry.get("of-shop")
        others = [body("other", [seq], at_ms=task.created_at_ms) for seq in range(100)]
        await backend.receipts.append([*others, body(task.id, [1], at_ms=task.created_at_ms)])
        asked = ListEnds(task=task.id)
        found = await pages(backend, settings, asked, ReadBounds(page_s=0.0))

    assert len(found) > 1
    assert found[0] == []
    assert [one.seq for page in found for one in page] == [1]


async def test_the_hash_of_a_recipient_finds_their_row(
    memory: MemoryBackend, settings: Settings
) -> None:
    async with filled(memory, settings) as backend:
        await deliver(memory, settings)
        who = of_shop(Role.SUBMITTER)
        ends = await do(backend, settings, who, ListEnds(task="of-shop", hashes=True))
        asked = HashRecipients(recipients=("user-1", "nobody"))
        [known, unknown] = (await do(backend, settings, who, asked)).hashes

    by_hash = {one.recipient_hash: one.seq for one in ends}
    assert (by_hash[known], unknown in by_hash) == (2, False)
    assert all(len(each or "") == 16 for each in by_hash)


async def test_hashes_are_for_who_may_submit(memory: MemoryBackend, settings: Settings) -> None:
    viewer = Caller("eve", "http", Access(Role.VIEWER))
    async with filled(memory, settings) as backend:
        with pytest.raises(NotAllowed, match="hashes of recipients need submitter"):
            await do(backend, settings, viewer, ListEnds(task="of-shop", hashes=True))
        with pytest.raises(NotAllowed, match="needs submitter"):
            await do(backend, settings, viewer, HashRecipients(recipients=("user-1",)))


async def test_the_task_of_another_app_is_not_there(
    memory: MemoryBackend, settings: Settings
) -> None:
    async with filled(memory, settings) as backend:
        with pytest.raises(UnknownTask):
            await do(backend, settings, of_shop(), ListEnds(task="of-bank"))


@pytest.mark.parametrize(
    "place", ["x", "[1]", '[["0","0","0","0"],["0"],0]', '[["a","b","c","d"],[],0]']
)
async def test_a_cursor_that_is_made_up_is_refused(
    memory: MemoryBackend, settings: Settings, place: str
) -> None:
    async with filled(memory, settings) as backend:
        asked = ListEnds(task="of-shop")
        text = msgspec.json.encode([_question(asked), place])
        cursor = urlsafe_b64encode(text).decode()
        asked = msgspec.structs.replace(asked, cursor=cursor)
        with pytest.raises(BadInput, match="cursor is not one that a page has given"):
            await do(backend, settings, ADMIN, asked)


async def test_over_http_pages_are_linked(memory: MemoryBackend, settings: Settings) -> None:
    async with filled(memory, settings):
        await deliver(memory, settings)
        async with asking(settings, connect=memory.connect) as http:
            first = await http("GET", "/v1/tasks/of-shop/ends", query={"limit": "2"})
            link: Any = first.headers["link"]
            cursor = link.partition("cursor=")[2].partition(">")[0]
            asked = {"limit": "2", "cursor": cursor}
            rest = await http("GET", "/v1/tasks/of-shop/ends", query=asked)

    assert (len(first.json), len(rest.json)) == (2, 1)
    assert "link" not in rest.headers


async def test_the_client_lists_them_all(memory: MemoryBackend, settings: Settings) -> None:
    async with filled(memory, settings):
        await deliver(memory, settings)
        async with Client(settings, connect=memory.connect) as client:
            ends = await client.ends("of-shop", hashes=True)
            [hashed] = await client.recipient_hashes(["user-0"])
            some = [page async for page in client.pages(ListEnds(task="of-shop", limit=2))]

    assert [one.seq for one in ends if one.recipient_hash == hashed] == [1]
    assert sum(map(len, some)) == len(ends) == 3
