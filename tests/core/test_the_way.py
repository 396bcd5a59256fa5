"""One story, from submit to ack, by the parts of core alone: killed between every two steps.

A step is a call of a port that changes something outside of the process, or a call of the sink. The
story is told once to the end, which counts its steps. Then it is told again for each step, with a
process that is killed just before it, or once it is done and before anybody hears of that; another
one takes over. Whatever the step, every push is at the sink, each is counted once, and nothing is
left on a lane.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pushlane.backends.backend import Backend
from pushlane.backends.memory import MemoryBackend
from pushlane.core.admission import Admission, Options
from pushlane.core.endings import Ending, Flusher
from pushlane.core.intake import Intake
from pushlane.core.lane import Job, Lane
from pushlane.core.lanes import Lanes
from pushlane.core.loop import Loop
from pushlane.core.names import DEFAULT_SINK, own_lane
from pushlane.core.ports import Delivery, LaneReader
from pushlane.core.publish import Publication
from pushlane.core.push import DELIVERED, Outcome, Push, encode
from pushlane.core.republish import Republisher
from pushlane.core.settle import Settler
from pushlane.core.slots import Slots
from pushlane.core.task import Level, Task
from pushlane.core.turns import Scheduler
from pushlane.dispatcher.stats import Stats

SLOTS = 2
PUSHES = 5
TRIED_TWICE, DEAD = 2, 4
TASK = Task(id="t", level=Level.HIGH, lane=own_lane("t"), bundle=2)
DEADLINE_S = 60.0


class Killed(BaseException):
    """The process is no more: nothing of it runs on."""


class Steps:
    """Counts steps, and kills the process at one of them: before it, or once it is done."""

    def __init__(self, kill_at: int = 0, *, done: bool = False) -> None:
        self.count = 0
        self.names: list[str] = []
        self.dead = asyncio.Event()
        self._kill_at = kill_at
        self._done = done

    async def take(self, name: str, step: Callable[[], Awaitable[Any]]) -> Any:
        self.count += 1
        self.names.append(name)
        is_last = self.count == self._kill_at
        if self.dead.is_set() or (is_last and not self._done):
            await self._die()
        found = await step()
        if is_last:
            await self._die()
        return found

    async def _die(self) -> None:
        self.dead.set()
        await asyncio.Event().wait()  # whoever asked hears nothing, until all of it is cancelled


class Stepped:
    """A port of a process: calls of these methods are steps."""

    def __init__(self, real: Any, steps: Steps, *names: str) -> None:
        self._real = real
        self._steps = steps
        self._names = names

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._real, name)
        if name not in self._names:
            return method
        return lambda *given, **options: self._steps.take(name, lambda: method(*given, **options))


class Sink:
    """It fails one push once, and says of another that it is dead."""

    name, batch_size, mixes_tasks, hosts_code = "memory", 2, True, False

    def __init__(self) -> None:
        self.received: list[Push] = []

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        self.received += [one.push for one in batch]
        return [self._answer(one.push) for one in batch]

    def _answer(self, push: Push) -> Outcome:
        if push.seq == DEAD:
            return Outcome.dead("HTTP 410")
        is_first = push.seq == TRIED_TWICE and push.attempt == 1
        return Outcome.retry("HTTP 500", after_s=0.0) if is_first else DELIVERED

    async def close(self) -> None:
        """Nothing is open."""


class OpenBreaker:
    """Lets all go."""

    is_choosy = False

    def room(self, free: int) -> int:
        return free

    def wake_in_s(self) -> None:
        return None

    def permit(self, jobs: Sequence[Job]) -> None:
        """Every permit is the same."""

    def is_valid(self, permit: int) -> bool:
        return True

    def give_back(self, permit: int, count: int) -> None:
        """Nobody counts."""

    def landed(self, jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> list[float | None]:
        return [None] * len(jobs)


class Opener:
    """Opens a task's later lane when a push first waits there, and reads it."""

    def __init__(self, backend: Backend, read: Callable[[], Awaitable[None]]) -> None:
        self._backend = backend
        self._read = read

    async def ensure(self, task_id: str, sink: str = "") -> None:
        await self._backend.open_later(task_id)
        await self._read()

    async def find(self, task_id: str) -> Task | None:
        return await self._backend.find(task_id)


class Process:
    """The parts of core, put together as `dispatcher/line.py` does it, without any option."""

    def __init__(self, backend: Backend, sink: Sink, steps: Steps) -> None:
        self._backend = backend
        broker: Any = Stepped(backend.broker, steps, "publish", "ack")
        registry: Any = Stepped(backend.registry, steps, "record", "move")
        delivering: Any = Stepped(sink, steps, "deliver")
        breaker: Any = OpenBreaker()
        counts, self._task = Stats(), TASK
        self.lanes = Lanes(Scheduler(slots=SLOTS))
        self.flusher = Flusher(broker, registry, self._write_receipts)
        self.republisher = Republisher(
            broker, Opener(backend, self._read_later), self.flusher, numbered=True
        )
        settler = Settler(
            DEFAULT_SINK, self.flusher, self.republisher, counts, lambda _: 0.0, _no_pause
        )
        self.intake = Intake(
            registry, settler.ack, lambda _: self._task, counts, lambda: False, lambda: math.inf
        )
        slots = Slots(delivering, SLOTS, settler, breaker, [], counts, self.lanes)
        options = Options([], [])
        admission = Admission(
            lambda _: self._task, _no_look_up, options, self.lanes, settler, counts
        )
        self.loop = Loop(
            self.lanes, self.intake, admission, breaker, slots, self.flusher, lambda _: None
        )
        self.written: list[Ending] = []

    async def run(self) -> None:
        """Read the task's lane, for ever."""
        self._task = await self._backend.known(TASK.id)
        lane = self.lanes.add(TASK.lane, TASK.level)
        await self._read(lane)
        if self._task.has_later:
            await self._read_later()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.intake.run(self.lanes.by_name.values))
            group.create_task(self.republisher.run())
            group.create_task(self.flusher.run())
            group.create_task(self.loop.run())

    async def _read_later(self) -> None:
        lane = self.lanes.by_name[TASK.lane]
        if lane.later.reader is None:
            await self._read(lane, is_later=True)

    async def _read(self, lane: Lane, *, is_later: bool = False) -> None:
        lane_input = lane.later if is_later else lane.main

        def feed(_: LaneReader) -> None:
            lane_input.ready()
            self.intake.fill(lane)

        reader = await self._backend.broker.read(lane_input.name, feed)
        lane.opened(lane_input, reader)

    async def _write_receipts(self, endings: Sequence[Ending]) -> None:
        self.written += [ending for ending in endings if ending.outcome is not None]


def _no_pause(task_id: str, reason: str) -> None:
    raise AssertionError("nobody asks for a pause here")


def _no_look_up(job: Job) -> None:
    raise AssertionError("the task is known")


async def submit(backend: Backend, steps: Steps) -> None:
    """Register, open, publish, seal: each may be done again by who was killed in between."""
    stepped = Stepped(backend, steps, "change_known")
    stepped.broker = Stepped(backend.broker, steps, "open_lane", "publish")
    await steps.take("add", lambda: backend.registry.add(TASK))
    publication = Publication(stepped, TASK)  # type: ignore[arg-type]
    await publication.open()
    bodies = [encode(Push(TASK.id, seq, f"to-{seq}")) for seq in range(1, PUSHES + 1)]
    for start in range(0, PUSHES, 2):
        await publication.publish(bodies[start : start + 2], "submit-t")
    await publication.seal(PUSHES)


@asynccontextmanager
async def until_it_dies(work: Awaitable[None], steps: Steps) -> AsyncIterator[None]:
    """Run it meanwhile; in the end it is gone, and so is all that it held."""
    running = asyncio.ensure_future(work)
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def killed_or_done(work: Awaitable[None], steps: Steps, is_done: Any) -> bool:
    """Return whether it was done; else it was killed."""
    async with asyncio.timeout(DEADLINE_S), until_it_dies(work, steps):
        dead = asyncio.ensure_future(steps.dead.wait())
        done = asyncio.ensure_future(is_done())
        await asyncio.wait((dead, done), return_when=asyncio.FIRST_COMPLETED)
        was_done = done.done()
        for waiting in (dead, done):
            waiting.cancel()
    return was_done


async def told(kill_at: int, *, done: bool) -> tuple[Steps, Sink, MemoryBackend]:
    """Tell the story with a process that is killed at this step, and others until it is over."""
    memory, sink, steps = MemoryBackend(), Sink(), Steps(kill_at, done=done)
    parts: tuple[Callable[[Backend, Steps], tuple[Awaitable[None], Any]], ...] = (
        _submitting,
        lambda backend, steps: _dispatching(backend, sink, steps),
    )
    for part in parts:
        now = steps
        while True:
            async with memory.connect() as backend:
                work, is_done = part(backend, now)
                if await killed_or_done(work, now, is_done):
                    break
            now = Steps()
    return steps, sink, memory


def _submitting(backend: Backend, steps: Steps) -> tuple[Awaitable[None], Any]:
    work = asyncio.ensure_future(submit(backend, steps))
    return work, lambda: asyncio.shield(work)


def _dispatching(backend: Backend, sink: Sink, steps: Steps) -> tuple[Awaitable[None], Any]:
    async def is_over() -> None:
        while any([await backend.broker.backlog(lane) for lane in await _lanes(backend)]):
            await asyncio.sleep(0)

    return Process(backend, sink, steps).run(), is_over


async def _lanes(backend: Backend) -> list[str]:
    return [lane for lane in await backend.broker.lanes() if not lane.endswith("-dead")]


async def check(sink: Sink, memory: MemoryBackend) -> None:
    """Every push is at the sink, each is counted once, and nothing is left but who is dead."""
    assert {push.seq for push in sink.received} == set(range(1, PUSHES + 1))
    assert max(push.attempt for push in sink.received) == 2
    async with memory.connect() as backend:
        [progress] = await backend.registry.progress([TASK.id])
        assert (progress.delivered, progress.dead) == (PUSHES - 1, 1)
        assert await backend.broker.backlog(f"{TASK.lane}-dead") >= 1
        assert (await backend.registry.get(TASK.id)).total == PUSHES


async def test_nobody_is_killed() -> None:
    steps, sink, memory = await told(0, done=False)

    await check(sink, memory)
    assert len(sink.received) == PUSHES + 1, "one was tried twice, and none came again"
    assert steps.names[:3] == ["add", "open_lane", "change_known"]
    assert steps.names[-1] == "ack", "last of all"


async def test_what_is_not_durable_is_not_acked() -> None:
    steps, _, _ = await told(0, done=False)

    after = steps.names[steps.names.index("deliver") :]
    assert after.index("record") < after.index("ack")


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
async def test_a_kill_between_every_two_steps(done: bool) -> None:
    whole, _, _ = await told(0, done=False)
    repeated: list[int] = []

    for step in range(1, whole.count + 1):
        _, sink, memory = await told(step, done=done)
        await check(sink, memory)
        repeated.append(len(sink.received) - PUSHES - 1)

    assert whole.count >= 12
    assert max(repeated) <= PUSHES + 1, "no more than was in hand comes again"
    assert repeated[0] == 0, "what is not published yet is sent once"
