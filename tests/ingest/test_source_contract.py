"""What every source does, whatever it reads: a folder, a topic of Kafka by either protocol."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from pushlane import Settings
from pushlane.backends.backend import Backend, connect
from pushlane.core.errors import BadInput
from pushlane.ingest.folder import FolderSource, _end_of, _File
from pushlane.ingest.record import Record
from pushlane.ingest.source import Given, RecordSource
from tests.core.support import until
from tests.ingest.kafka_topics import CLASSIC, CONSUMER, Topic


class Heard:
    """A receiver that writes down what it is told, and says where to begin."""

    def __init__(self, **starts: int) -> None:
        self.starts = starts
        self.has: dict[str, Given] = {}
        self.records: dict[str, list[Record]] = {}
        self.let: list[str] = []
        self.refuses: Exception | None = None

    async def given(self, partitions: Sequence[Given]) -> Mapping[str, int]:
        if self.refuses is not None:
            raise self.refuses
        self.has |= {one.partition: one for one in partitions}
        return {one.partition: self.starts.get(one.partition, one.low) for one in partitions}

    def take(self, partition: str, records: Sequence[Record]) -> None:
        assert partition in self.has
        self.records.setdefault(partition, []).extend(records)

    def sought(self, partition: str) -> None:
        self.records[partition] = []

    async def let_go(self, partitions: Sequence[str]) -> Mapping[str, int]:
        gone = [name for name in partitions if self.has.pop(name, None)]
        self.let += gone
        return {name: self.records[name][-1].offset + 1 for name in gone if name in self.records}

    def lost(self, partitions: Sequence[str]) -> None:
        for name in partitions:
            self.has.pop(name, None)

    def values(self, partition: str) -> list[bytes | None]:
        return [one.value for one in self.records.get(partition, [])]


class Place:
    """Where a test puts its records, and what opens a source of them."""

    def __init__(
        self, names: Sequence[str], add: Callable[..., None], opened: Callable[[], RecordSource]
    ) -> None:
        self.names = names
        self.add = add
        self.opened = opened


def folder_place(folder: Path, backend: Backend) -> Place:
    def add(number: int, *values: bytes) -> None:
        with (folder / f"{number}.jsonl").open("ab") as file:
            file.write(b"".join(value + b"\n" for value in values))

    return Place(["0.jsonl", "1.jsonl"], add, lambda: FolderSource(folder, backend.lease, "a/b"))


def topic_place(servers: str, settings: Mapping[str, str]) -> Place:
    topic = Topic(servers)
    topic.make(2)
    return Place(["0", "1"], topic.add, lambda: topic.source(settings))


@pytest.fixture(params=["folder", "classic", "consumer"])
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of source; those of Kafka start its broker, or are skipped without one."""
    if request.param != "folder":
        request.getfixturevalue("kafka_servers")
    return str(request.param)


@pytest.fixture
def servers(kind: str, request: pytest.FixtureRequest) -> str:
    return "" if kind == "folder" else str(request.getfixturevalue("kafka_servers"))


@pytest.fixture
def place(
    kind: str, servers: str, settings: Settings, tmp_path: Path
) -> Callable[[], AbstractAsyncContextManager[Place]]:
    @asynccontextmanager
    async def made() -> AsyncIterator[Place]:
        async with connect(settings) as backend:
            if kind == "folder":
                yield folder_place(tmp_path, backend)
            else:
                yield topic_place(servers, CLASSIC if kind == "classic" else CONSUMER)

    return made


Placed = Callable[[], AbstractAsyncContextManager[Place]]


@asynccontextmanager
async def running(source: RecordSource, heard: Heard) -> AsyncIterator[asyncio.Task[None]]:
    work = asyncio.create_task(source.run(heard))
    try:
        yield work
    finally:
        source.close()
        await asyncio.gather(work, return_exceptions=True)


async def test_it_gives_all_records_from_where_it_is_told_and_those_that_come(
    place: Placed,
) -> None:
    async with place() as there:
        first, second = there.names
        there.add(0, b"a", b"b", b"c")
        there.add(1, b"d")
        heard = Heard(**{first: 1})
        source = there.opened()
        async with running(source, heard) as work:
            await until(lambda: heard.values(first) and heard.values(second))
            there.add(0, b"e")
            await until(lambda: len(heard.values(first)) == 3)

            given = heard.has[first]
            ends = await source.ends()
        await work
        assert [one.offset for one in heard.records[first]] == [1, 2, 3]
        assert heard.values(first) == [b"b", b"c", b"e"]
        assert heard.values(second) == [b"d"]
        assert (given.low, given.high, ends) == (0, 3, {first: 4, second: 1})
        assert sorted(heard.let) == [first, second]
        assert heard.has == {}


async def test_a_paused_partition_gives_nothing_while_others_do(place: Placed) -> None:
    async with place() as there:
        first, second = there.names
        there.add(0, b"a")
        there.add(1, b"b")
        heard = Heard()
        source = there.opened()
        async with running(source, heard):
            await until(lambda: heard.values(first) and heard.values(second))
            source.pause(first)
            there.add(1, b"d")
            await until(lambda: heard.values(second) == [b"b", b"d"])
            there.add(0, b"c")
            there.add(1, b"e")
            await until(lambda: heard.values(second) == [b"b", b"d", b"e"])
            paused = heard.values(first)
            source.resume(first)
            await until(lambda: heard.values(first) == [b"a", b"c"])
        assert paused == [b"a"]


async def test_a_seek_goes_back_and_says_so_before_the_first_record_of_there(
    place: Placed,
) -> None:
    async with place() as there:
        first = there.names[0]
        there.add(0, b"a", b"b", b"c")
        heard = Heard()
        source = there.opened()
        async with running(source, heard):
            await until(lambda: len(heard.values(first)) == 3)
            source.pause(first)
            source.seek(first, 1)
            source.resume(first)
            await until(lambda: heard.values(first) == [b"b", b"c"])
            assert [one.offset for one in heard.records[first]] == [1, 2]


async def test_the_next_has_the_same_source_id_and_the_end(place: Placed) -> None:
    async with place() as there:
        first = there.names[0]
        there.add(0, b"a", b"b")
        seen = []
        for _ in range(2):
            heard = Heard()
            async with running(there.opened(), heard):
                await until(lambda heard=heard: heard.values(first))
                seen.append(heard.has[first])
        assert seen[0] == seen[1]
        assert seen[0].source_id


async def test_two_share_the_partitions_and_one_takes_over_from_the_other(place: Placed) -> None:
    async with place() as there:
        there.add(0, b"a")
        there.add(1, b"b")
        one, other = Heard(), Heard()
        names = set(there.names)
        async with running(there.opened(), other):
            async with running(there.opened(), one) as work:
                await until(lambda: one.has.keys() | other.has.keys() == names)
                both = one.has.keys() & other.has.keys()
            await work
            await until(lambda: other.has.keys() == names)
        assert not both


async def test_what_the_receiver_refuses_ends_it(place: Placed) -> None:
    async with place() as there:
        there.add(0, b"a")
        heard = Heard()
        heard.refuses = BadInput("no")
        async with running(there.opened(), heard) as work:
            with pytest.raises(BadInput, match="no"):
                await work


async def test_it_can_be_closed_before_it_begins(place: Placed) -> None:
    async with place() as there:
        source = there.opened()
        source.close()
        await source.run(Heard())


def test_the_lines_of_a_file_that_two_count_at_once_are_counted_once(tmp_path: Path) -> None:
    path = tmp_path / "0.jsonl"
    path.write_bytes(b"{}\n" * 5)

    class Reading(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            assert not meanwhile or _end_of(meanwhile.pop()) == 5
            return super().read(size)

    class Slow(type(path)):  # type: ignore[misc]
        def open(self, *_: object, **__: object) -> io.BytesIO:
            return Reading(path.read_bytes())

    file = _File(Slow(path))
    meanwhile = [file]

    assert _end_of(file) == _end_of(file) == 5
