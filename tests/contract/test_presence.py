"""What presence promises on every backend (see `backends.ports.Presence`)."""

from __future__ import annotations

from pushlane.model.presence import Process, Resting
from tests.contract.reading import until

LONG_S = 600
SHORT_S = 0.05

ONE = Process(
    id="one",
    kind="dispatcher",
    pid=7,
    version="0.2.0",
    format=2,
    lanes=3,
    sinks=("webhook", "log"),
    started_at_ms=1_790_000_000_000,
    resting=(Resting("sink webhook", 5, "refused", 9),),
)


def other(name: str, started_at_ms: int = 1) -> Process:
    return Process(id=name, kind="dispatcher", pid=8, version="0.1.0", started_at_ms=started_at_ms)


async def test_what_a_process_says_of_itself_is_there_for_all(connections):
    async with connections:
        here, there = await connections.two()

        await here.presence.announce(ONE, LONG_S)

        assert await there.presence.list() == [ONE]


async def test_nobody_is_there_at_first(connections):
    async with connections:
        assert await (await connections.one()).presence.list() == []


async def test_processes_are_listed_by_when_they_started(connections):
    async with connections:
        presence = (await connections.one()).presence
        for process in (other("b", 2), other("c", 1), other("a", 2)):
            await presence.announce(process, LONG_S)

        assert [process.id for process in await presence.list()] == ["c", "a", "b"]


async def test_what_is_said_later_counts(connections):
    async with connections:
        here, there = await connections.two()
        await here.presence.announce(other("one"), LONG_S)

        await here.presence.announce(ONE, LONG_S)

        assert await there.presence.list() == [ONE]


async def test_who_leaves_is_no_longer_there(connections):
    async with connections:
        here, there = await connections.two()
        await here.presence.announce(ONE, LONG_S)
        await there.presence.announce(other("two"), LONG_S)

        await here.presence.leave("one")
        await here.presence.leave("one")

        assert [process.id for process in await there.presence.list()] == ["two"]


async def test_who_says_nothing_any_more_is_gone_after_a_while(connections):
    async with connections:
        here, there = await connections.two()
        await here.presence.announce(ONE, SHORT_S)
        await here.presence.announce(other("two"), LONG_S)

        async def gone() -> bool:
            return [process.id for process in await there.presence.list()] == ["two"]

        await until(gone)


async def test_to_announce_again_starts_the_time_anew(connections):
    async with connections:
        here, there = await connections.two()
        await here.presence.announce(ONE, SHORT_S)
        await here.presence.announce(other("two"), SHORT_S)

        await here.presence.announce(ONE, LONG_S)

        async def two_is_gone() -> bool:
            return len(await there.presence.list()) == 1

        await until(two_is_gone)
        assert await there.presence.list() == [ONE]
