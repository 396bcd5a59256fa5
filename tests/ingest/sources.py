"""A source in memory, a process that reads it, and what is on the lanes then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from pushlane import Settings
from pushlane.backends.backend import Backend
from pushlane.core.push import Push
from pushlane.core.task import Level, State, Task
from pushlane.ingest.bad_records import BadRecordFile
from pushlane.ingest.ingest import Held, Ingest
from pushlane.ingest.mapping import Made, compiled
from pushlane.ingest.record import Record
from pushlane.ingest.source import Given, Receiver
from pushlane.model.names import submit_lease
from pushlane.model.streams import Stream
from pushlane.producers.replay import retained_pushes
from pushlane.producers.stream_tasks import tasks_of

STREAM = Stream(name="orders", app="orders", level=Level.HIGH, created_at_ms=1)
TO_DEVICE = compiled({"recipient": "device"}, "one")


def value(device: str, **more: Any) -> bytes:
    return msgspec.json.encode({"device": device, **more})


class Log:
    """The records of partitions, which all sources of it read."""

    def __init__(self, source_id: str = "first") -> None:
        self.name = "log"
        self.source_id = source_id
        self.of: dict[str, list[Record]] = {}
        self.low: dict[str, int] = {}

    def add(self, partition: str, *values: bytes | None, step: int = 1) -> None:
        """Append records, each `step` behind the one before."""
        there = self.of.setdefault(partition, [])
        at = self.end(partition)
        for one in values:
            there.append(Record(partition, at, one))
            at += step

    def end(self, partition: str) -> int:
        there = self.of.get(partition, [])
        return there[-1].offset + 1 if there else 0

    def given(self, partition: str) -> Given:
        low = self.low.get(partition, 0)
        return Given(partition, self.source_id, low, self.end(partition))


class LogSource:
    """Reads a log, of which it has the partitions that a test gives it."""

    def __init__(self, log: Log, most: int = 100) -> None:
        self.log = log
        self.name = log.name
        self.trouble = ""
        self.committed: dict[str, int] = {}
        self.paused: set[str] = set()
        self.at: dict[str, int] = {}
        self._most = most
        self.seeks: dict[str, int] = {}
        self._closed = asyncio.Event()
        self.receiver: Receiver | None = None
        self.ready = asyncio.Event()

    async def run(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.ready.set()
        await self._closed.wait()
        await self.take_away(*self.at)

    async def give(self, *partitions: str) -> None:
        assert self.receiver is not None
        self.at |= await self.receiver.given([self.log.given(name) for name in partitions])

    async def take_away(self, *partitions: str) -> None:
        assert self.receiver is not None
        self.committed |= await self.receiver.let_go(partitions)
        for name in partitions:
            self.at.pop(name, None)

    async def read(self, partition: str | None = None) -> None:
        """Give all that there is, as far as the receiver takes it."""
        assert self.receiver is not None
        for name in list(self.at) if partition is None else [partition]:
            while name in self.at and name not in self.paused:
                if name in self.seeks:
                    self.at[name] = self.seeks.pop(name)
                    self.receiver.sought(name)
                some = [r for r in self.log.of[name] if r.offset >= self.at[name]][: self._most]
                if not some:
                    break
                self.receiver.take(name, some)
                self.at[name] = some[-1].offset + 1
                await asyncio.sleep(0)

    def pause(self, partition: str) -> None:
        self.paused.add(partition)

    def resume(self, partition: str) -> None:
        self.paused.discard(partition)

    def seek(self, partition: str, offset: int) -> None:
        self.seeks[partition] = offset

    async def commit(self, offsets: Mapping[str, int]) -> None:
        self.committed |= offsets

    async def offset_at(self, partition: str, at_ms: int) -> int:
        """As if each record had come in the millisecond of its offset."""
        return at_ms

    async def ends(self) -> Mapping[str, int]:
        return {name: self.log.end(name) for name in self.at}

    def close(self) -> None:
        self._closed.set()


class Reader:
    """A process that reads a log."""

    def __init__(self, ingest: Ingest, source: LogSource, running: asyncio.Task[None]) -> None:
        self.ingest = ingest
        self.source = source
        self.running = running

    async def read(self) -> None:
        """Read all that there is, until it is done. Raises what ends the process."""
        while True:
            await self.source.read()
            ends = [asyncio.ensure_future(one.partition.idle()) for one in self._held()]
            idle = asyncio.gather(*ends)
            await asyncio.wait({idle, self.running}, return_when=asyncio.FIRST_COMPLETED)
            if self.running.done():
                idle.cancel()
                await self.running
            if all(self.source.at[n] >= self.source.log.end(n) for n in self.source.at):
                return

    def _held(self) -> list[Held]:
        return [one for name, one in self.ingest.held.items() if name in self.source.at]

    async def end(self) -> None:
        self.ingest.stop()
        await self.running

    async def kill(self, backend: Backend) -> None:
        """End as a process that was killed ends: nothing more is done, and its leases run out."""
        lanes = [lane for one in self.ingest.held.values() for lane in one.partition.lanes]
        for one in self.ingest.held.values():
            one.running.cancel()
        self.ingest.held.clear()
        self.running.cancel()
        with suppress(asyncio.CancelledError):
            await self.running
        for lane in lanes:
            if lane.position.task_id:
                await backend.lease.release(submit_lease(lane.position.task_id), lane.holder)


@asynccontextmanager
async def reading(
    backend: Backend,
    settings: Settings,
    log: Log,
    *partitions: str,
    mapping: Made = TO_DEVICE,
    stream: Stream = STREAM,
    bad: Path | None = None,
    **options: Any,
) -> AsyncIterator[Reader]:
    """A process that reads these partitions; it is ended if it still runs."""
    source = LogSource(log)
    file = BadRecordFile(log.name, bad)
    ingest = Ingest(backend, settings, stream, source, mapping, file, **options)
    running = asyncio.create_task(ingest.run())
    ready = asyncio.create_task(source.ready.wait())
    await asyncio.wait({ready, running}, return_when=asyncio.FIRST_COMPLETED)
    ready.cancel()
    if partitions:
        await source.give(*partitions)
    reader = Reader(ingest, source, running)
    try:
        yield reader
    finally:
        if not running.done():
            await reader.end()


async def pushes(backend: Backend, stream: Stream = STREAM) -> list[Push]:
    """All pushes that are on lanes of the stream, in the order of its tasks."""
    tasks = await tasks_of(backend, stream, tuple(State))
    return [push for task in reversed(tasks) async for push in retained_pushes(backend, task)]


async def recipients(backend: Backend) -> list[str]:
    return [push.recipient for push in await pushes(backend)]


async def tasks(backend: Backend) -> Sequence[Task]:
    return await tasks_of(backend, STREAM, tuple(State))
