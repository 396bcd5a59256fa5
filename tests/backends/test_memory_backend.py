"""The backend in memory, as the tests of an application use it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import pytest

from pushlane import (
    Client,
    Dispatcher,
    Level,
    MemoryBackend,
    Producer,
    Push,
    Settings,
    State,
    SubmitRequest,
    open_sink,
)
from pushlane.core.ports import LaneReader

ROWS = [{"recipient": f"user-{number}"} for number in range(40)]
HOUR_MS = 3_600_000

_sent: list[Push] = []


def send(push: Push) -> None:
    """The function of an application that delivers."""
    _sent.append(push)


@pytest.fixture
def sent() -> Iterator[list[Push]]:
    """What `send` was given in this test."""
    yield _sent
    _sent.clear()


async def delivered(memory: MemoryBackend, settings: Settings) -> None:
    """Deliver all there is."""
    sink = open_sink(f"{__name__}:send", slots=4, timeout_s=30)
    async with memory.connect(settings) as backend:
        await Dispatcher(backend, sink, settings, drain=True).run()
    await sink.close()


@pytest.mark.parametrize("level", [Level.HIGH, Level.LOW])
async def test_rows_that_are_submitted_go_to_a_function(settings, sent, level) -> None:
    memory = MemoryBackend()
    async with Client(settings, connect=memory.connect) as client:
        result = await client.submit(SubmitRequest(source=ROWS, level=level, title="Hi"))

        await delivered(memory, settings)

        assert sorted(push.recipient for push in sent) == sorted(row["recipient"] for row in ROWS)
        assert (await client.task(result.task.id)).state == State.DONE
        assert (await client.task(result.task.id)).delivered == len(ROWS)
    assert not settings.data_dir.exists()


def test_what_a_producer_pushes_is_there_when_it_has_closed(settings, sent) -> None:
    memory = MemoryBackend()
    with Producer("orders", settings=settings, connect=memory.connect) as producer:
        for number in range(100):
            producer.push(f"user-{number}")

    asyncio.run(delivered(memory, settings))

    assert sorted(push.seq for push in sent) == list(range(1, 101))


async def test_a_reader_hears_of_a_push_from_the_thread_of_a_producer(settings) -> None:
    memory, is_ready = MemoryBackend(), asyncio.Event()
    told_on: list[asyncio.AbstractEventLoop] = []

    def on_ready(reader: LaneReader) -> None:
        told_on.append(asyncio.get_running_loop())
        is_ready.set()

    async with (
        memory.connect() as backend,
        Producer("orders", level=Level.HIGH, settings=settings, connect=memory.connect) as producer,
    ):
        assert await producer.aflush()
        while not (lanes := [one for one in await backend.broker.lanes() if "task-" in one]):
            await asyncio.sleep(0)
        reader = await backend.broker.read(lanes[0], on_ready)
        assert reader.take() is None

        await producer.apush("user-1")
        await is_ready.wait()

        assert reader.take() is not None
        assert told_on == [asyncio.get_running_loop()]


async def test_a_delay_passes_when_the_clock_is_set_on() -> None:
    now_ms = 1_790_000_000_000
    memory, is_ready = MemoryBackend(lambda: now_ms), asyncio.Event()
    async with memory.connect() as backend:
        await backend.broker.open_lane("task-a")
        await backend.broker.publish("task-a", [b"later"], delay_s=3_600)
        reader = await backend.broker.read("task-a", lambda _: is_ready.set())
        assert reader.take() is None

        now_ms += HOUR_MS + 1
        memory.clock_was_set()
        await is_ready.wait()

        taken = reader.take()
        assert taken is not None
        assert taken.body == b"later"


async def test_what_a_connection_held_comes_back_when_it_ends() -> None:
    memory, is_ready = MemoryBackend(), asyncio.Event()
    async with memory.connect() as staying:
        await staying.broker.open_lane("task-a")
        reader = await staying.broker.read("task-a", lambda _: is_ready.set())
        async with memory.connect() as leaving:
            first = asyncio.Event()
            other = await leaving.broker.read("task-a", lambda _: first.set())
            await leaving.broker.publish("task-a", [b"1"])
            await first.wait()
            assert other.take() is not None
            await is_ready.wait()
            assert reader.take() is None
            is_ready.clear()

        await is_ready.wait()

        taken = reader.take()
        assert taken is not None
        assert not taken.is_first


async def test_two_backends_have_nothing_in_common() -> None:
    async with MemoryBackend().connect() as here, MemoryBackend().connect() as there:
        await here.broker.open_lane("task-a")

        assert await there.broker.lanes() == []


def test_it_loads_no_store_and_no_client() -> None:
    code = (
        "import sys, pushlane; pushlane.MemoryBackend(); "
        "print(*{'sqlite3', 'redis', 'pulsar', '_pulsar'}.intersection(sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout.strip() == ""
