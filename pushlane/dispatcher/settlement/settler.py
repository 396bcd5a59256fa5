"""Outcomes become durable, and only then are their messages acked.

Retries and forwards are on a lane again, dead pushes are on the dead-letter lane; receipts are in
their log, and then finished pushes are counted in the registry; then the messages are acked of
which no push is left. A crash anywhere between repeats a push and never loses one. What waits here
is bounded lane by lane: a crowded one leaves the ring, so that what cannot be published holds its
own lane alone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from pushlane.dispatcher.job import Job
from pushlane.dispatcher.known_tasks import KnownTasks
from pushlane.dispatcher.lane import OpenLane
from pushlane.dispatcher.lane_ring import LaneRing
from pushlane.dispatcher.messages import Held, Message, Place
from pushlane.dispatcher.settlement.completion import Completion
from pushlane.dispatcher.settlement.receipts import Receipt, Receipts
from pushlane.dispatcher.settlement.republisher import (
    FLUSH_EVERY_S,
    Ack,
    Republish,
    Republisher,
)
from pushlane.dispatcher.settlement.stop_if_dead import StopIfDead
from pushlane.lanes.backend import Backend
from pushlane.lanes.errors import PushlaneError
from pushlane.lanes.naming import DEAD_LANE, dead_lane, is_chained, is_later, is_pool, lane_at
from pushlane.lanes.ports import Taken
from pushlane.lanes.push import DeadPush, Kind, Push, encode_dead
from pushlane.lanes.put_off import PutOffTally, Wait
from pushlane.lanes.retrying import Backoff
from pushlane.lanes.task import Finished, Moved, Progress
from pushlane.lanes.task_transitions import now_ms

log = logging.getLogger("pushlane.settle")

_MOST_UNSETTLED = 10_000
_LEAST_A_LANE = 32
_LATEST_S = 0.05
_DELAY_STEP_S = 0.1
_REASON_LONGEST = 1_000


OnDurable = Callable[[Iterable[Place], Iterable[Place]], None]
"""Hears which pushes are finished now, and which are on a lane again."""


class Settler:
    """Carries outcomes to the registry and the broker, in batches.

    `completion` and `stops` hear the new counts of every task that a batch touched; `ring` that a
    lane has become crowded, or that less of it is in hand; `wake` is called when there is room
    again. What is published again is `numbered` where the broker needs that.
    """

    def __init__(
        self,
        backend: Backend,
        tasks: KnownTasks,
        receipts: Receipts,
        completion: Completion,
        stops: StopIfDead,
        ring: LaneRing,
        wake: Callable[[], None],
        *,
        numbered: bool = False,
    ) -> None:
        self._backend = backend
        self._receipts = receipts
        self._completion = completion
        self._stops = stops
        self._ring = ring
        self._wake = wake
        self._ends: list[Ack] = []
        self._settled_before: list[Taken] = []
        self._put_off = PutOffTally()
        self._unacked = 0  # of these, while they are being acked, too
        self._republisher = Republisher(backend, tasks, receipts, self, numbered=numbered)
        self._ends_since_s = 0.0
        self._flushing_since_s = 0.0
        self._ended = asyncio.Event()
        self._settled = asyncio.Event()
        self.unsettled = 0

    def _count(self, lane: OpenLane) -> None:
        self.unsettled += 1
        if lane.add_unsettled() >= _LEAST_A_LANE and not lane.crowded:
            self._look_at(lane)

    def _look_at(self, lane: OpenLane) -> None:
        if self._is_crowded(lane):
            lane.set_crowded(True)
            self._ring.released(lane)

    @property
    def is_late(self) -> bool:
        """Tell whether an outcome has waited for so long that a kill now would repeat too many."""
        return self.oldest_s() > _LATEST_S

    def oldest_s(self) -> float:
        """Return for how long the oldest outcome waits to be durable, 0 when there is none."""
        since_s = self._flushing_since_s or self._ends_since_s
        return time.monotonic() - since_s if since_s else 0.0

    def _is_crowded(self, lane: OpenLane) -> bool:
        """Tell whether the lane has over half the room that is left; a few are always allowed."""
        return lane.unsettled >= max(_LEAST_A_LANE, (_MOST_UNSETTLED - self.unsettled) // 2)

    def finish(self, job: Job, kind: Kind, reason: str = "", at_ms: int = 0) -> None:
        """Count a finished push, then ack. It was at `at_ms`, now unless that is given."""
        self._count(job.lane)
        push = job.push
        receipt = Receipt(job, kind, reason, at_ms) if self._receipts.is_on else None
        self._ends_since_s = self._ends_since_s or time.monotonic()
        self._ends.append(Ack(job.lane, job.taken, push.task_id, push.seq, kind, receipt))
        self._ended.set()

    def delivered(self, jobs: Sequence[Job], at_ms: int) -> None:
        """Do as `finish` does for many that are delivered, as nearly all are."""
        with_receipts, append = self._receipts.is_on, self._ends.append
        kind = Kind.DELIVERED
        for job in jobs:
            lane, push = job.lane, job.push
            receipt = Receipt(job, kind, "", at_ms) if with_receipts else None
            append(Ack(lane, job.taken, push.task_id, push.seq, kind, receipt))
            if lane.add_unsettled() >= _LEAST_A_LANE and not lane.crowded:
                self._look_at(lane)
        self.unsettled += len(jobs)
        self._ends_since_s = self._ends_since_s or time.monotonic()
        self._ended.set()

    def move(
        self,
        lane: OpenLane,
        taken: Held,
        push: Push,
        target: str,
        body: bytes,
    ) -> None:
        """Publish a push on another lane, then ack."""
        self._count(lane)
        end = Ack(lane, taken, push.task_id, push.seq, None, moves=not is_later(taken.lane))
        self._republisher.add(Republish(target, body, end))

    def pass_on(
        self,
        lane: OpenLane,
        taken: Held,
        push: Push,
        sink: str,
        body: bytes,
        receipt: Receipt | None,
    ) -> None:
        """Publish a push on its task's lane at the next sink of its chain, then ack."""
        self._count(lane)
        moves = not is_later(taken.lane)
        end = Ack(lane, taken, push.task_id, push.seq, None, receipt, moves)
        target = lane_at(push.task_id, sink)
        self._republisher.add(Republish(target, body, end, opens_for=push.task_id, opens_at=sink))

    def later(
        self,
        lane: OpenLane,
        taken: Held,
        push: Push,
        body: bytes,
        delay_s: float,
        receipt: Receipt | None = None,
        wait: Wait | None = None,
    ) -> None:
        """Let a push wait on its later lane, not to be taken before `delay_s`.

        There is a receipt when it was tried. `wait` says what for, where people should know.
        """
        if wait is not None:
            self._put_off.add(push.task_id, wait, now_ms() + round(delay_s * 1000))
        self._count(lane)
        lane.add_deferred(1)
        moves = not is_later(taken.lane)
        end = Ack(lane, taken, push.task_id, push.seq, None, receipt, moves)
        is_open = is_pool(lane.name) or is_chained(lane.name)  # with its lane
        opens_for = "" if is_open else push.task_id
        self._republisher.add(Republish(lane.later.name, body, end, _rounded(delay_s), opens_for))

    def bury(
        self,
        lane: OpenLane,
        taken: Held,
        dead: DeadPush,
        receipt: Receipt | None = None,
        reason: str = "",
    ) -> None:
        """Put a dead push on a dead-letter lane, count it under the class `reason`, then ack.

        A task with a lane of its own has a dead-letter lane of its own, so that none has to look
        through the dead of others. It costs no reader, as nobody reads it until somebody asks.
        """
        self._count(lane)
        kind = Kind.DEAD if dead.task_id else None
        end = Ack(lane, taken, dead.task_id, dead.seq, kind, receipt, reason=reason)
        is_shared = is_pool(lane.name) or not dead.task_id
        target = DEAD_LANE if is_shared else dead_lane(dead.task_id)
        self._republisher.add(Republish(target, encode_dead(dead), end))

    def forget(self, lane: OpenLane, taken: Held, push: Push) -> None:
        """Ack a copy of a push that was finished before it came."""
        self._count(lane)
        self._ends.append(Ack(lane, taken, push.task_id, push.seq, None))
        self._ended.set()

    def ack(self, message: Message) -> None:
        """Ack a copy of a message of which every push was settled before it came."""
        self._settled_before.append(message.taken)
        self._unacked += 1
        self._ended.set()

    def end(self, ends: Sequence[Ack]) -> None:
        """Count pushes that are on another lane now, then ack."""
        self._ends.extend(ends)
        self._ended.set()

    def give_up(self, ends: Sequence[Ack]) -> None:
        """Leave pushes unacked, for processes of a newer version."""
        self._release(ends)

    async def run_moves(self) -> None:
        """Publish what goes on on another lane, for ever."""
        await self._republisher.run()

    async def run_ends(self, on_durable: OnDurable) -> None:
        """Make outcomes durable, then ack, for ever; `on_durable` hears what became of each."""
        backoff = Backoff(log, "the registry")
        while True:
            await self._ended.wait()
            self._ended.clear()
            await asyncio.sleep(FLUSH_EVERY_S)
            ends, self._ends = self._ends, []
            acked, self._settled_before = self._settled_before, []
            self._flushing_since_s, self._ends_since_s = self._ends_since_s, 0.0
            await self._flush(ends, acked, backoff)
            on_durable(*_fates(ends))
            self._flushing_since_s = 0.0

    async def _flush(self, ends: list[Ack], acked: list[Taken], backoff: Backoff) -> None:
        """Make outcomes durable; ack the messages of which all pushes are settled, and `acked`."""
        settled_before = len(acked)
        await self._receipts.write([end.receipt for end in ends if end.receipt is not None])
        progress: Sequence[Progress] = []
        if moved := _moved(ends):
            await backoff.until_done(lambda: self._backend.registry.move(moved))
        finished = _grouped(ends)
        if finished:
            progress = await backoff.until_done(lambda: self._backend.registry.record(finished))
        for end in ends:
            message = end.taken.message
            message.left -= 1
            if not message.left:
                acked.append(message.taken)
        if acked:
            await backoff.until_done(lambda: self._backend.broker.ack(acked))
        self._unacked -= settled_before
        self._release(ends)
        await self._note_put_off()
        self._completion.on_progress(progress)
        self._stops.on_counted(progress, finished)

    async def _note_put_off(self) -> None:
        """Note what was put off, for people alone: it is left out when the registry is away."""
        if put_off := self._put_off.take():
            try:
                await self._backend.registry.put_off(put_off)
            except PushlaneError as error:
                log.debug("what was put off is not noted: %s", error)

    def _release(self, ends: Sequence[Ack]) -> None:
        self.unsettled -= len(ends)
        for lane, count in Counter([end.lane for end in ends]).items():
            lane.settled(count)
            lane.set_crowded(self._is_crowded(lane))
            self._ring.released(lane)
        self._settled.set()
        self._wake()

    async def drain(self) -> None:
        """Wait until nothing is unsettled, and what was settled before is acked."""
        while self.unsettled or self._unacked:
            self._settled.clear()
            await self._settled.wait()


def _fates(ends: list[Ack]) -> tuple[Iterable[Place], Iterable[Place]]:
    """Return the pushes that are finished, and those that are on a lane again."""
    return (
        ((end.task_id, end.seq) for end in ends if end.kind is not None),
        ((end.task_id, end.seq) for end in ends if end.kind is None),
    )


def _grouped(ends: list[Ack]) -> list[Finished]:
    seqs: dict[tuple[str, Kind, str], list[int]] = defaultdict(list)
    for end in ends:
        if end.kind is not None:
            seqs[end.task_id, end.kind, end.reason].append(end.seq)
    return [Finished(task_id, kind, found, why) for (task_id, kind, why), found in seqs.items()]


def _moved(ends: list[Ack]) -> list[Moved]:
    seqs: dict[str, list[int]] = defaultdict(list)
    for end in ends:
        if end.moves and end.kind is None:
            seqs[end.task_id].append(end.seq)
    return [Moved(task_id, numbers) for task_id, numbers in seqs.items()]


def _rounded(delay_s: float) -> float:
    """Round a delay up to a step, so that retries travel in batches."""
    return -(-delay_s // _DELAY_STEP_S) * _DELAY_STEP_S if delay_s > 0 else 0.0


def dead_push(
    task_id: str, seq: int, attempt: int, reason: str, body: bytes, sink: str = ""
) -> DeadPush:
    return DeadPush(task_id, seq, attempt, reason[:_REASON_LONGEST], now_ms(), body, sink)
