"""The core loop: slot, turn, push, sink, outcome.

A slot is taken before the lane is chosen, and the lane before the message, so the choice is as late
as it can be. Whether the push may still go out is checked then, at the last moment. The loop never
waits for a lane: one with nothing at hand leaves the ring.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

import msgspec
from msgspec.structs import replace

from dispatcher.lane import OpenLane
from dispatcher.roster import Roster
from dispatcher.scheduler import Scheduler
from dispatcher.settle import Settler, dead_push
from dispatcher.stats import Stats
from lanes.errors import MalformedPush
from lanes.life import now_ms
from lanes.ports import Delivery, Sink, Taken
from lanes.push import Kind, Outcome, Push, decode, encode
from lanes.task import State, Task

log = logging.getLogger("pushlane.loop")

_VOIDS_A_ROUND = 256
_RETRY_FIRST_S = 1.0
_RETRY_LONGEST_S = 300.0
_WAIT_LONGEST_S = 86_400.0  # whatever a sink asks for
_PAUSED_AGAIN_S = 1.0  # so that a sink is left alone until the pause has got through
_GIVE_UP_S = 1.0


class _Job(msgspec.Struct):
    """A push that holds a slot."""

    lane: OpenLane
    taken: Taken
    push: Push
    task: Task


class Loop:
    """Fills slots with pushes in the scheduler's order until it is told to stop.

    `pause` asks for a whole task to be paused, as a sink did.
    """

    def __init__(
        self,
        scheduler: Scheduler[OpenLane],
        roster: Roster,
        settler: Settler,
        sink: Sink,
        stats: Stats,
        slots: int,
        pause: Callable[[str, str], None],
    ) -> None:
        self._scheduler = scheduler
        self._roster = roster
        self._settler = settler
        self._sink = sink
        self._stats = stats
        self._pause = pause
        self._free = slots
        self._slots = slots
        self._awake = asyncio.Event()
        self._stopping = False
        self._refilling: OpenLane | None = None
        self._refill_by = 0.0
        self._flying: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    @property
    def in_flight(self) -> int:
        return self._slots - self._free

    def wake(self) -> None:
        self._awake.set()

    def stop(self) -> None:
        """Take no more; what is in flight goes on."""
        self._stopping = True
        self._awake.set()

    async def run(self) -> None:
        while not self._stopping:
            if self._failure is not None:
                raise self._failure
            self._awake.clear()
            jobs, voids = self._fill() if self._may_fill() else ([], 0)
            if jobs:
                self._launch(jobs)
            if jobs or voids:
                await asyncio.sleep(0)
            else:
                await self._rest()

    async def landed(self, timeout_s: float) -> int:
        """Wait for what is in flight; returns how many did not come back in time."""
        if self._flying:
            await asyncio.wait(self._flying, timeout=timeout_s)
        return self.in_flight

    async def give_up(self) -> None:
        """Cancel what is in flight: its pushes come again. A sink may be slow to hear of it."""
        for flight in self._flying:
            flight.cancel()
        await self.landed(_GIVE_UP_S)

    def _may_fill(self) -> bool:
        """Whether outcomes have room, and no level is about to get what it has next.

        A level that is only empty because we are faster than the store keeps its turn: without
        this, its share would go to the others. It is waited for shortly, and only when the reader
        knows that more is coming.
        """
        lane = self._refilling
        if lane is not None and (lane.fed or time.monotonic() >= self._refill_by):
            self._refilling = None
        return self._refilling is None and not self._settler.is_full

    async def _rest(self) -> None:
        """Until something has changed; no longer than a level may be waited for."""
        if self._refilling is None:
            await self._awake.wait()
            return
        left_s = self._refill_by - time.monotonic()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._awake.wait(), max(0.0, left_s))

    def _starve(self, lane: OpenLane) -> bool:
        """The lane has nothing at hand. Whether its level should be waited for."""
        self._roster.starve(lane)
        wait_s = 0.0 if self._scheduler.has_ready(lane.level) else lane.refill_wait_s()
        if wait_s:
            self._refilling = lane
            self._refill_by = time.monotonic() + wait_s
        return wait_s > 0

    def _fill(self) -> tuple[list[_Job], int]:
        """Pushes for the free slots, at most a batch, in the order of their turns."""
        jobs: list[_Job] = []
        voids = 0
        most = min(self._sink.batch_size, self._free)
        while len(jobs) < most and voids < _VOIDS_A_ROUND:
            lane = self._scheduler.pick()
            if lane is None:
                break
            taken = lane.take()
            if taken is None:
                if self._starve(lane):
                    break
                continue
            job = self._admit(lane, taken)
            if job is None:
                voids += 1
                continue
            self._scheduler.charge()
            jobs.append(job)
        return jobs, voids

    def _admit(self, lane: OpenLane, taken: Taken) -> _Job | None:
        """The push as a job, or None when it is not to be sent now; then it is taken care of."""
        try:
            push = decode(taken.body)
        except MalformedPush as error:
            self._stats.malformed += 1
            self._settler.bury(lane, taken, dead_push("", 0, 0, f"malformed: {error}", taken.body))
            return None
        task = self._roster.find(push.task_id)
        if task is None:
            self._roster.ask(push.task_id, lane, taken)
            return None
        if task.state.is_terminal:
            kind = Kind.EXPIRED if task.state is State.EXPIRED else Kind.DROPPED
            self._finish(lane, taken, push, kind)
            return None
        if _is_past(push.expires_at_ms) or _is_past(task.expires_at_ms):
            self._finish(lane, taken, push, Kind.EXPIRED)
            return None
        if task.lane != lane.name:
            self._stats.forwarded += 1
            self._settler.move(lane, taken, push, task.lane, taken.body)
            return None
        if task.state is State.PAUSED:
            self._roster.hold(lane, taken)
            return None
        return _Job(lane, taken, push, task)

    def _finish(self, lane: OpenLane, taken: Taken, push: Push, kind: Kind) -> None:
        self._stats.outcomes[lane.level, kind] += 1
        self._settler.finish(lane, taken, push.task_id, push.seq, kind)

    def _launch(self, jobs: list[_Job]) -> None:
        self._free -= len(jobs)
        for batch in self._batches(jobs):
            flight = asyncio.ensure_future(self._deliver(batch))
            self._flying.add(flight)
            flight.add_done_callback(self._on_landed)

    def _on_landed(self, flight: asyncio.Task[None]) -> None:
        self._flying.discard(flight)
        if not flight.cancelled() and (error := flight.exception()) is not None:
            self._failure = error
        self._awake.set()

    def _batches(self, jobs: list[_Job]) -> Iterable[list[_Job]]:
        if self._sink.mixes_tasks or len(jobs) == 1:
            return [jobs]
        jobs.sort(key=lambda job: job.task.id)
        return [list(batch) for _, batch in groupby(jobs, key=lambda job: job.task.id)]

    async def _deliver(self, jobs: list[_Job]) -> None:
        started = time.monotonic()
        for job in jobs:
            self._stats.picked[job.lane.level] += 1
        try:
            outcomes = await self._ask_sink([Delivery(job.push, job.task.level) for job in jobs])
            self._stats.delivery.add(time.monotonic() - started)
            for job, outcome in zip(jobs, outcomes, strict=True):
                self._settle(job, outcome)
        finally:
            self._free += len(jobs)

    async def _ask_sink(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        """The sink's outcomes; a sink that fails as a whole means a retry of each."""
        try:
            outcomes = await self._sink.deliver(batch)
            fault = _fault(outcomes, len(batch))
        except Exception as error:  # noqa: BLE001 - a sink is somebody else's code
            log.warning(
                "sink %s raised %s",
                self._sink.name,
                type(error).__name__,
                extra={"action": "sink_raised"},
            )
            return [Outcome.retry(f"sink raised {type(error).__name__}")] * len(batch)
        if fault:
            log.error(fault, extra={"action": "sink_misanswered"})
            return [Outcome.retry(fault)] * len(batch)
        return outcomes

    def _settle(self, job: _Job, outcome: Outcome) -> None:
        kind = outcome.kind
        push = job.push
        if kind is Kind.RETRY:
            return self._retry(job, outcome)
        self._stats.outcomes[job.lane.level, kind] += 1
        if push.attempt == 1 and push.submitted_at_ms:
            self._stats.waited[job.lane.level].add((now_ms() - push.submitted_at_ms) / 1000)
        if kind is Kind.DEAD:
            dead = dead_push(push.task_id, push.seq, push.attempt, outcome.reason, job.taken.body)
            return self._settler.bury(job.lane, job.taken, dead)
        return self._settler.finish(job.lane, job.taken, push.task_id, push.seq, kind)

    def _retry(self, job: _Job, outcome: Outcome) -> None:
        push = job.push
        if outcome.pause_task:
            self._pause(push.task_id, outcome.reason)
            again_s = _PAUSED_AGAIN_S
            return self._settler.move(
                job.lane, job.taken, push, job.lane.name, job.taken.body, again_s
            )
        if push.attempt >= job.task.max_attempts:
            reason = f"gave up after {push.attempt} attempts: {outcome.reason}"
            return self._settle(job, Outcome.dead(reason))
        self._stats.outcomes[job.lane.level, Kind.RETRY] += 1
        wait_s = _backoff_s(push.attempt) if outcome.after_s is None else outcome.after_s
        delay_s = min(wait_s, _WAIT_LONGEST_S)
        body = encode(replace(push, attempt=push.attempt + 1))
        return self._settler.move(job.lane, job.taken, push, job.lane.name, body, delay_s)


def _is_past(at_ms: int) -> bool:
    return at_ms != 0 and at_ms <= now_ms()


def _fault(outcomes: Sequence[Outcome], count: int) -> str:
    """What is wrong with a sink's answer, if anything."""
    if len(outcomes) != count:
        return f"sink answered {len(outcomes)} outcomes for {count} pushes"
    for outcome in outcomes:
        if not (isinstance(outcome, Outcome) and isinstance(outcome.kind, Kind)):
            return f"sink answered a {type(outcome).__name__} that is no outcome"
    return ""


def _backoff_s(attempt: int) -> float:
    """Exponential with full jitter over the upper half, so that retries do not come in waves."""
    longest: float = min(_RETRY_LONGEST_S, _RETRY_FIRST_S * 2 ** min(attempt - 1, 30))
    return longest * random.uniform(0.5, 1.0)
