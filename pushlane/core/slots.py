"""The slots: so many pushes are on their way to the sink at once, and what became of each is heard.

A batch holds its slots from its launch until it has landed: its guards are asked, the sink is, and
the outcomes are settled. There are two ways. A sink that can is *posted* a push which no guard
concerns: its answer calls back, and all that were answered in one turn of the event loop land
together. Any other batch is *delivered* by an asyncio task of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import Any, Protocol

import msgspec

from pushlane.core.admission import Guard
from pushlane.core.lane import Job
from pushlane.core.lanes import Lanes
from pushlane.core.ports import Counts, Delivery, Sink
from pushlane.core.push import Kind, Outcome
from pushlane.core.settle import Settler, by_promise
from pushlane.core.task import Level, SteadyTime

_GIVE_UP_S = 1.0
_AT_ONCE = 64


class Batch(msgspec.Struct, gc=False, eq=False):
    """Pushes that hold slots together. Slots writes all of it.

    `levels` counts them by the level that they went out at, and `since_s` is when they took their
    slots, on a monotonic clock. `sent` are those that the sink was sent, as guards let them go, and
    `outcomes` its answers to them; none while there is no answer. `took_s` is how long it took for
    them. `spared` are those whose failure counts for nothing: they go again at no attempt.
    """

    jobs: Sequence[Job]
    guards: tuple[Guard, ...]
    permit: int
    levels: Mapping[Level, int]
    since_s: float
    sent: Sequence[Job] = ()
    outcomes: Sequence[Outcome] = ()
    took_s: float = 0.0
    spared: Sequence[Job] = ()


class Watcher(Protocol):
    """Sees batches go and come, each by one call; it keeps none of them back."""

    def launched(self, batch: Batch) -> None:
        """Hear of pushes that have taken their slots."""

    def landed(self, batch: Batch, now_s: float) -> None:
        """Hear of pushes that are settled, or were not sent: their slots are free again."""


class Breaker(Protocol):
    """Decides how many pushes may go to a sink that fails, and which, and whose fault it was.

    In a dispatcher that is `dispatcher.outage`.
    """

    def room(self, free: int) -> int:
        """Return how many free slots may be filled now."""

    @property
    def is_choosy(self) -> bool:
        """Tell whether so few pushes may go that it matters which."""

    def choose(self, jobs: Sequence[Job]) -> Job:
        """Choose the one to try; the others go back to their lanes."""

    def recall(self) -> bool:
        """Give back the push that failed first, as nothing else is there to try; tell if any."""

    def wake_in_s(self) -> float | None:
        """Return after how long there may be room though nothing has landed; None if never."""

    def permit(self, jobs: Sequence[Job]) -> None:
        """Give pushes that are about to go their permit."""

    def is_valid(self, permit: int) -> bool:
        """Tell whether pushes with this permit may go: the sink was not found down meanwhile."""

    def give_back(self, permit: int, count: int) -> None:
        """Count off pushes that have a permit and did not go."""

    def put_back(self, jobs: Sequence[Job]) -> None:
        """Make pushes that did not go the next of their lanes."""

    def landed(self, jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> Sequence[float | None]:
        """Hear what the sink answered to pushes with one permit.

        Returns for each how long it is to wait, None if it is to be settled; nothing if all were
        delivered and that is all there is to it.
        """

    def keep(self, job: Job, wait_s: float, outcome: Outcome) -> None:
        """Keep a push that the sink did not take: it goes again after `wait_s`, at no attempt."""


class Slots:
    """Holds the slots, at most `slots`, and asks the sink.

    `usable` is how many may be in use now: a watcher writes it. The sink's answers are taken as
    they are: it has to give an outcome for each push, and may raise nothing. A sink of which nobody
    can know that is wrapped before (`dispatcher.checked_sink`).
    """

    def __init__(
        self,
        sink: Sink,
        slots: int,
        settler: Settler,
        breaker: Breaker,
        watchers: Sequence[Watcher],
        counts: Counts,
        lanes: Lanes,
    ) -> None:
        self._sink = sink
        self._slots = slots
        self._free = slots
        self._settler = settler
        self._breaker = breaker
        self._watchers = tuple(watchers)
        self._counts = counts
        self._lanes = lanes
        self._running: set[asyncio.Task[None]] = set()
        self._posted: set[Batch] = set()  # those that no answer has come to
        self._answers: list[Batch] = []  # those that one has come to, until they land
        self._freed = asyncio.Event()
        self._failure: BaseException | None = None
        self.usable = slots

    @property
    def in_flight(self) -> int:
        return self._slots - self._free

    @property
    def room(self) -> int:
        """Return how many pushes may go now: one round of the loop for each would be slow."""
        free = max(0, min(self._slots, self.usable) - self.in_flight)
        return min(max(self._sink.batch_size, _AT_ONCE), free)

    def raise_failure(self) -> None:
        """Raise what a delivery died of: a fault of ours, since a sink's is an outcome."""
        if self._failure is not None:
            raise self._failure

    def launch(self, jobs: list[Job]) -> None:
        """Let pushes go that were admitted, in batches of those that may share a call."""
        self._breaker.permit(jobs)
        self._free -= len(jobs)
        now_s = time.monotonic()
        can_post = getattr(self._sink, "can_post", False)
        for some in self._batches(jobs):
            first = some[0]
            batch = Batch(some, first.guards, first.permit, _levels(some), now_s)
            for watcher in self._watchers:
                watcher.launched(batch)
            if can_post and not batch.guards and self._post(batch):
                continue
            task = asyncio.create_task(self._deliver(batch))
            self._running.add(task)
            task.add_done_callback(self._on_landed)

    async def landed(self, timeout_s: float) -> int:
        """Wait for what is in flight; returns how many pushes did not land in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.in_flight:
                    self._freed.clear()
                    await self._freed.wait()
        self._land()
        return self.in_flight

    async def give_up(self) -> None:
        """Give up what is in flight: its pushes come again. A sink may be slow to hear of it.

        What was answered lands; an answer after this changes nothing.
        """
        self._land()
        for task in self._running:
            task.cancel()
        posted, self._posted = self._posted, set()
        for batch in posted:
            self._breaker.give_back(batch.permit, len(batch.jobs))
        self._let_go(list(posted))
        await self.landed(_GIVE_UP_S)

    def _post(self, batch: Batch) -> bool:
        """Post a push; tell whether it went. What did not goes the other way."""
        [job] = batch.jobs
        sink: Any = self._sink
        self._posted.add(batch)
        if not sink.post(self._delivery(job), self._answered, batch) and batch in self._posted:
            self._posted.discard(batch)
            return False
        self._count_sent(batch, batch.jobs)
        return True

    def _answered(self, batch: Batch, outcome: Outcome) -> None:
        """Hear the answer to a push that was posted; the first one counts."""
        if batch not in self._posted:
            return
        self._posted.discard(batch)
        batch.outcomes = (outcome,)
        batch.took_s = time.monotonic() - batch.since_s
        self._counts.answered(batch.took_s)
        self._answers.append(batch)
        if len(self._answers) == 1:
            asyncio.get_running_loop().call_soon(self._land)

    def _land(self) -> None:
        """Land what was answered, in the order of the answers; a fault of ours ends the process."""
        answers, self._answers = self._answers, []
        for _, some in groupby(answers, attrgetter("permit")):
            batches = list(some)
            try:
                try:
                    self._land_together(batches)
                finally:
                    self._let_go(batches)
            except Exception as error:  # noqa: BLE001 - the loop raises it
                self._failure = error
                self._lanes.wake()

    def _land_together(self, batches: Sequence[Batch]) -> None:
        """Settle pushes that have one permit."""
        jobs = [batch.jobs[0] for batch in batches]
        waits_s = self._breaker.landed(jobs, [batch.outcomes[0] for batch in batches])
        if not waits_s:
            self._settler.delivered(jobs, SteadyTime.now_ms())
            return
        for batch, wait_s in zip(batches, waits_s, strict=True):
            self._settle(batch, self._final(batch, [wait_s]), [wait_s])

    def _let_go(self, batches: Sequence[Batch]) -> None:
        """Free the slots of batches that have landed, or went nowhere."""
        now_s = time.monotonic()
        slots = 0
        for batch in batches:
            for watcher in self._watchers:
                watcher.landed(batch, now_s)
            slots += len(batch.jobs)
            self._counts.freed(batch.outcomes, now_s - batch.since_s)
            for level, count in batch.levels.items():
                self._lanes.turns.slots_freed(level, count)
        self._free += slots
        self._freed.set()
        self._lanes.wake()

    def _on_landed(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = error
        self._lanes.wake()

    def _batches(self, jobs: list[Job]) -> Iterable[list[Job]]:
        """Group jobs that may share a call: a push that no guard concerns waits for none."""
        size = self._sink.batch_size
        if size == 1:
            yield from ([job] for job in jobs)
            return
        groups: dict[tuple[tuple[Guard, ...], str, int], list[Job]] = {}
        mixes_tasks = self._sink.mixes_tasks
        for job in jobs:
            alone = id(job) if job.push.strikes else 0  # it may end the process
            key = (job.guards, "" if mixes_tasks else job.task.id, alone)
            groups.setdefault(key, []).append(job)
        for group in groups.values():
            for start in range(0, len(group), size):
                yield group[start : start + size]

    async def _deliver(self, batch: Batch) -> None:
        left = len(batch.jobs)
        jobs, guards = batch.jobs, batch.guards
        try:
            if guards:
                for job in jobs:
                    job.set_aside("claim")
                jobs = await admitted(guards, jobs)
            if jobs and not self._breaker.is_valid(batch.permit):
                await conclude(guards, jobs, [None] * len(jobs))
                self._breaker.put_back(jobs)
            elif jobs:
                await self._ask(batch, jobs)
                waits_s = self._breaker.landed(jobs, batch.outcomes)
                left -= len(jobs)
                final = self._final(batch, waits_s)
                if guards:
                    await conclude(guards, jobs, final)
                self._settle(batch, final, waits_s)
        finally:
            self._breaker.give_back(batch.permit, left)
            self._let_go([batch])

    async def _ask(self, batch: Batch, jobs: Sequence[Job]) -> None:
        """Have the sink deliver the pushes, and note its answers."""
        started_s = time.monotonic()
        self._count_sent(batch, jobs)
        batch.outcomes = await self._sink.deliver([self._delivery(job) for job in jobs])
        batch.took_s = time.monotonic() - started_s
        self._counts.answered(batch.took_s)

    def _count_sent(self, batch: Batch, jobs: Sequence[Job]) -> None:
        at_ms = SteadyTime.now_ms()
        for job in jobs:
            job.dispatched_at_ms = at_ms
            self._counts.sent(job.lane.level, job.task.app)
        batch.sent = jobs

    def _delivery(self, job: Job) -> Delivery:
        push, level = job.task.dated(job.push), job.task.level
        if push.addresses is None and push.payloads is None:
            return Delivery(push, level, push.recipient)
        sink = self._settler.sink
        return Delivery(push, level, push.address(sink), push.payload(sink))

    def _final(self, batch: Batch, waits_s: Sequence[float | None]) -> Sequence[Outcome]:
        """Return what is to be settled. A wait counts as a retry."""
        if not waits_s:
            return batch.outcomes
        passed_on = self._settler.passed_on
        return [
            by_promise(job.task, passed_on(job, one) if wait_s is None else _retried(one))
            for job, one, wait_s in zip(batch.sent, batch.outcomes, waits_s, strict=True)
        ]

    def _settle(
        self, batch: Batch, final: Sequence[Outcome], waits_s: Sequence[float | None]
    ) -> None:
        """Settle what landed. A push that is to wait is kept, unless its task forbids that."""
        at_ms = SteadyTime.now_ms()
        if not waits_s:
            self._settler.delivered(batch.sent, at_ms)
            return
        for job, outcome, wait_s in zip(batch.sent, final, waits_s, strict=True):
            if outcome.kind is Kind.RETRY and (wait_s is not None or outcome.pause_task):
                batch.spared = (*batch.spared, job)
            if wait_s is not None and outcome.kind is Kind.RETRY:
                self._breaker.keep(job, wait_s, outcome)
            else:
                self._settler.settle(job, outcome, at_ms)


def _levels(jobs: Sequence[Job]) -> Mapping[Level, int]:
    if len(jobs) == 1:
        return {jobs[0].lane.level: 1}
    return Counter([job.lane.level for job in jobs])


async def admitted(guards: Sequence[Guard], jobs: Sequence[Job]) -> list[Job]:
    """Return those that all of the guards let go; the others are taken care of."""
    going = list(jobs)
    for number, guard in enumerate(guards):
        asked, going = going, await guard.admit(going)
        if len(going) < len(asked):
            let_go = set(map(id, going))
            back = [job for job in asked if id(job) not in let_go]
            await conclude(guards[:number], back, [None] * len(back))
        if not going:
            break
    return going


async def conclude(
    guards: Sequence[Guard], jobs: Sequence[Job], outcomes: Sequence[Outcome | None]
) -> None:
    """Tell each guard what is to be settled of these pushes, in the opposite order."""
    for guard in reversed(guards):
        await guard.conclude(jobs, outcomes)


def _retried(outcome: Outcome) -> Outcome:
    """Make a retry of an outcome: the task's promise says whether it may go again."""
    if outcome.kind is Kind.RETRY:
        return outcome
    return msgspec.structs.replace(outcome, kind=Kind.RETRY)
