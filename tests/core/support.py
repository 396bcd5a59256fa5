"""What tests of the dispatcher share: a sink that remembers, tasks in one call, a running one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pushlane.backends.backend import Backend, connect
from pushlane.core.lane import Message
from pushlane.core.names import DEFAULT_SINK, own_lane, pool_lane
from pushlane.core.ports import Delivery, Sink, Taken
from pushlane.core.push import DELIVERED, DeadPush, Outcome, Push, encode
from pushlane.core.task import Level, State, Task
from pushlane.dispatcher import Dispatcher
from pushlane.model import task_changes
from pushlane.model.names import new_task_id
from pushlane.producers.dead import DeadLetters, Selection
from pushlane.settings import Settings
from pushlane.wire import MOST_PUSHES, packed

DEADLINE_S = 100.0  # less than a test may take in all
LOOK_EVERY_S = 0.001


class Wrapped:
    """A real adapter, in all but what a subclass changes."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class MemorySink:
    """Remembers what it was given; `answer` says what becomes of each. `gate` holds it back."""

    name = "memory"

    def __init__(
        self,
        answer: Callable[[Delivery], Outcome] = lambda _: DELIVERED,
        batch_size: int = 1,
        mixes_tasks: bool = True,
        hosts_code: bool = False,
    ) -> None:
        self.batch_size = batch_size
        self.mixes_tasks = mixes_tasks
        self.hosts_code = hosts_code
        self.received: list[Delivery] = []
        self.batches: list[list[Delivery]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.most_in_flight = 0
        self._in_flight = 0
        self._answer = answer
        self._arrived = asyncio.Condition()

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        self._in_flight += len(batch)
        self.most_in_flight = max(self.most_in_flight, self._in_flight)
        self.received += batch
        self.batches.append(list(batch))
        async with self._arrived:
            self._arrived.notify_all()
        try:
            await self.gate.wait()
        finally:
            self._in_flight -= len(batch)
        return [self._answer(delivery) for delivery in batch]

    async def close(self) -> None:
        return None

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds after some delivery."""
        async with asyncio.timeout(DEADLINE_S), self._arrived:
            await self._arrived.wait_for(condition)

    async def until_received(self, count: int) -> None:
        await self.until(lambda: len(self.received) >= count)

    def pushes(self, task: Task | None = None) -> list[tuple[str, int]]:
        return [
            (d.push.task_id, d.push.seq)
            for d in self.received
            if task is None or d.push.task_id == task.id
        ]


def settings_in(folder: Path, **given: Any) -> Settings:
    return Settings(
        broker="embedded",
        data_dir=folder,
        **{"pool_lanes": 2, "slots": 8, "prefetch": 4_000, **given},
    )


def message_of(lane: str, seq: int = 1, task_id: str = "t") -> Message:
    """A message of one push, whose handle is its seq."""
    return Message(Taken(encode(Push(task_id, seq, "nobody")), lane, seq))


def bundle_of(task: Task, seqs: Sequence[int]) -> bytes:
    """A message with these pushes of the task."""
    bodies = [encode(Push(task.id, seq, f"to-{seq}")) for seq in seqs]
    [bundle] = packed(bodies, MOST_PUSHES)
    return bundle.message


async def add_task(
    backend: Backend,
    level: Level = Level.HIGH,
    pushes: int = 10,
    *,
    seal: bool = True,
    expires_at_ms: int = 0,
    push_expires_at_ms: int = 0,
    addresses: Callable[[int], dict[str, str] | None] = lambda seq: None,
    **fields: Any,
) -> Task:
    """A task with its pushes on its lane: an own one for high and medium, the pool's for low.

    They go in bundles when the task has any.
    """
    task_id = new_task_id()
    sink = fields.get("sinks", (DEFAULT_SINK,))[0]
    lane = pool_lane(task_id, 2, sink) if level is Level.LOW else own_lane(task_id)
    task = Task(
        id=task_id, level=level, lane=lane, first_lane=lane, expires_at_ms=expires_at_ms, **fields
    )
    await backend.registry.add(task)
    await backend.broker.open_lane(lane)
    await backend.registry.change(task_id, task_changes.start)
    bodies = [
        encode(
            Push(
                task_id,
                seq,
                f"to-{seq}",
                expires_at_ms=push_expires_at_ms,
                addresses=addresses(seq),
            )
        )
        for seq in range(1, pushes + 1)
    ]
    messages = [one.message for one in packed(bodies, task.bundle or 1)]
    await backend.broker.publish(lane, messages)
    if seal:
        await backend.registry.change(task_id, task_changes.seal(pushes))
    return await backend.registry.get(task_id)


@asynccontextmanager
async def dispatching(
    backend: Backend, sink: Sink | Mapping[str, Sink], settings: Settings, **options: Any
) -> AsyncIterator[Dispatcher]:
    """A dispatcher that runs meanwhile and is stopped gently in the end."""
    dispatcher = Dispatcher(backend, sink, settings, **options)
    running = asyncio.create_task(dispatcher.run())
    try:
        yield dispatcher
    finally:
        dispatcher.stop()
        async with asyncio.timeout(DEADLINE_S):
            await running


async def drain(backend: Backend, sink: Sink | Mapping[str, Sink], settings: Settings) -> None:
    """Dispatch until every task is over."""
    async with asyncio.timeout(DEADLINE_S):
        await Dispatcher(backend, sink, settings, drain=True).run()


async def until(condition: Callable[[], Any]) -> None:
    """For a condition of this process that has no signal: look again and again.

    The loop idles in between: one that never does keeps SQLite's thread waiting for seconds, and a
    core from the tests that run beside.
    """
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(LOOK_EVERY_S)


async def until_task(backend: Backend, task: Task, condition: Callable[[Task], bool]) -> Task:
    """Wait, by the registry's own notices, until the task is so."""
    version = 0
    async with asyncio.timeout(DEADLINE_S):
        while not condition(now := await backend.registry.get(task.id)):
            version = (await backend.registry.changes(version, timeout_s=1.0)).version
    return now


async def until_state(backend: Backend, task: Task, state: State) -> Task:
    return await until_task(backend, task, lambda now: now.state is state)


@asynccontextmanager
async def backend_in(folder: Path, **given: Any) -> AsyncIterator[tuple[Backend, Settings]]:
    """An embedded backend of the test's own, with the settings it was opened with."""
    settings = settings_in(folder, **given)
    async with connect(settings) as backend:
        yield backend, settings


async def dead_pushes(backend: Backend, count: int) -> list[DeadPush]:
    """The dead pushes of all tasks, which must be so many."""
    found = await DeadLetters(backend).find(Selection())
    assert len(found.letters) == count
    return [letter.dead for letter in found.letters]
