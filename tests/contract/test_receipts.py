"""The receipts port: bodies in partitions, read by position, kept until they were taken over."""

from __future__ import annotations

import asyncio

from pushlane.backends.ports import ReceiptLog
from pushlane.core.push import Kind
from pushlane.core.task import Level, Progress, Task, now_ms
from pushlane.diagnosis.ends import EndsPlace, ends_of
from pushlane.diagnosis.results import results_of
from pushlane.model.reasons import Reasons
from tests.contract.conftest import Connections
from tests.receipt_bodies import body


async def everything(log: ReceiptLog, start, end) -> list[bytes]:
    found = []
    for partition in range(len(start)):
        async for page in log.read(partition, start[partition], end[partition]):
            found += page
    return found


async def fill(log: ReceiptLog, count: int, of: str = "body") -> list[bytes]:
    bodies = [f"{of}-{number}".encode() for number in range(count)]
    for one in bodies:
        await log.append([one])
    return bodies


async def test_a_new_log_has_positions_and_nothing_in_it(connections: Connections):
    async with connections:
        log = (await connections.one()).receipts

        first = await log.first()

        assert first
        assert await log.advance(first) == first
        assert await log.committed() is None
        assert await log.lag(first) == 0
        assert await everything(log, first, first) == []


async def test_what_is_appended_is_read_in_order_within_its_partition(connections: Connections):
    async with connections:
        log = (await connections.one()).receipts
        first = await log.first()

        await log.append([b"a", b"b", b"c"])
        await log.append([])

        end = await log.advance(first)
        assert await everything(log, first, end) == [b"a", b"b", b"c"]


async def test_appends_of_two_processes_all_come_once(connections: Connections):
    async with connections:
        one, other = await connections.two()
        first = await one.receipts.first()

        mine, others = await asyncio.gather(
            fill(one.receipts, 20, "mine"), fill(other.receipts, 20, "others")
        )

        end = await one.receipts.advance(first)
        found = await everything(one.receipts, first, end)
        assert sorted(found) == sorted(mine + others)
        assert await one.receipts.lag(first) == 40


async def test_positions_give_the_same_bodies_every_time(connections: Connections):
    async with connections:
        log, other = (backend.receipts for backend in await connections.two())
        first = await log.first()
        await fill(log, 10)
        end = await log.advance(first)
        found = await everything(log, first, end)

        await fill(log, 10, "more")

        assert await everything(log, first, end) == found
        assert await everything(other, first, end) == found


async def test_a_reader_that_goes_on_misses_nothing_and_has_nothing_twice(
    connections: Connections,
):
    async with connections:
        log, other = (backend.receipts for backend in await connections.two())
        position, found, sent = await log.first(), [], []
        for turn in range(4):
            sent += await fill(log if turn % 2 else other, 5, f"turn-{turn}")
            end = await log.advance(position)
            found += await everything(log, position, end)
            position = end

        assert sorted(found) == sorted(sent)
        assert await log.lag(position) == 0


async def test_advance_goes_at_most_so_many_bodies_further(connections: Connections):
    async with connections:
        log = (await connections.one()).receipts
        position, found = await log.first(), []
        sent = await fill(log, 10)

        sizes = []
        while (end := await log.advance(position, most=4)) != position:
            page = await everything(log, position, end)
            sizes.append(len(page))
            found += page
            position = end

        assert sizes == [4, 4, 2]
        assert sorted(found) == sorted(sent)


async def test_positions_whose_next_bodies_are_there_are_kept(connections: Connections):
    async with connections:
        log, other = (backend.receipts for backend in await connections.two())
        first = await log.first()
        assert await log.kept(first) == first

        await fill(log, 6)
        middle = await log.advance(first, most=3)
        end = await log.advance(first)
        await log.commit(middle)

        assert [await other.kept(each) for each in (first, middle, end)] == [first, middle, end]


async def test_what_was_committed_is_known_to_others(connections: Connections):
    async with connections:
        log, other = (backend.receipts for backend in await connections.two())
        await fill(log, 6)
        middle = await log.advance(await log.first(), most=3)

        await log.commit(middle)

        assert await other.committed() == middle
        assert await other.lag(middle) == 3


async def test_since_gives_what_was_appended_from_a_time_on(connections: Connections):
    async with connections:
        log = (await connections.one()).receipts
        first = await log.first()
        await fill(log, 8, "before")
        at_ms = await _next_ms()
        after = await fill(log, 8, "after")

        end = await log.advance(first)

        assert sorted(await everything(log, await log.since(at_ms), end)) == sorted(after)
        assert len(await everything(log, await log.since(0), end)) == 16
        assert await log.lag(await log.since(await _next_ms())) == 0


async def test_the_secret_is_one_for_all(connections: Connections):
    async with connections:
        log, other = (backend.receipts for backend in await connections.two())

        secrets = await asyncio.gather(log.secret(), other.secret(), log.secret())

        assert len(set(secrets)) == 1
        assert len(secrets[0]) == 16


async def test_the_secret_stays_when_something_is_committed(connections: Connections):
    async with connections:
        log = (await connections.one()).receipts
        secret = await log.secret()

        await log.commit(await log.first())

        assert await log.secret() == secret


async def _next_ms() -> int:
    """A time that is later than all that was appended, and not later than what will be."""
    at_ms = now_ms()
    while now_ms() <= at_ms:
        await asyncio.sleep(0)
    return now_ms()


async def test_results_are_read_by_position_and_commit_nothing(connections: Connections):
    task = Task(id="a", level=Level.HIGH, lane="a", created_at_ms=now_ms())
    counted = Progress("a", delivered=30, dead=2)
    async with connections:
        log = (await connections.one()).receipts
        await log.append([body("a", range(1, 21)), body("b", [1, 2]), b"no receipts"])
        await log.append([body("a", [21, 22], "dead", reason="HTTP 410"), body("a", [5, 6])])

        said = await results_of(log, task, counted, Reasons("a"))
        again = await results_of(log, task, counted, Reasons("a"))

        assert (said.counts[Kind.DELIVERED], said.counts[Kind.DEAD], said.unread) == (30, 2, 1)
        assert said.reasons == [(Kind.DEAD, "HTTP 410", 2)]
        assert said.lacking[Kind.DELIVERED] == 10
        assert again == said
        assert await log.committed() is None


async def test_ends_of_pushes_are_read_in_pages_each_row_once(connections: Connections):
    task = Task(id="a", level=Level.HIGH, lane="a", created_at_ms=now_ms())
    async with connections:
        log = (await connections.one()).receipts
        for seq in range(1, 60, 3):
            await log.append([body("a", [seq, seq + 1, seq + 2]), body("b", [seq]), b"no receipts"])

        for limit in (0, 1, 4, 60):
            found: list[int] = []
            place: EndsPlace | None = None
            while True:
                page = await ends_of(log, task, place, limit=limit)
                found += [row.seq for row in page.rows]
                assert not limit or len(page.rows) <= limit
                if page.next is None:
                    break
                place = page.next
            assert sorted(found) == [*range(1, 61)]

        assert await log.committed() is None
