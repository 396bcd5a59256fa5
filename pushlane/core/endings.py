"""Endings become durable, and only then are their messages acked.

Retries and forwards are on a lane again, dead pushes are on the dead-letter lane
(`core.republish`); receipts are in their log, and then finished pushes are counted in the registry;
then the messages are acked of which no push is left. A crash anywhere between repeats a push and
never loses one. What waits here is bounded lane by lane: a crowded one is blocked, so that what
cannot be published holds its own lane alone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec

from pushlane.core.lane import Job, Lane, Message, Why
from pushlane.core.ports import LaneBroker, SeqStore, Taken
from pushlane.core.push import Kind
from pushlane.core.retrying import Backoff
from pushlane.core.task import Finished, Moved, Progress

log = logging.getLogger("pushlane.settle")

FLUSH_EVERY_S = 0.01
_MOST_UNSETTLED = 10_000
_LEAST_A_LANE = 32
_LATEST_S = 0.05


class WaitReason(StrEnum):
    """What a push waits for on a later lane."""

    QUIET_HOURS = "quiet_hours"
    """The end of its recipient's quiet hours."""

    START = "start"
    """The start that it, or its task, was given."""

    RETRY = "retry"
    """Its next attempt, or a sink that asked it to wait."""


class Wait(NamedTuple):
    """Why one push is put off, and until when (Unix ms); `zone` is whose clock that goes by."""

    reason: WaitReason
    due_ms: int
    zone: str = ""


class Ending(msgspec.Struct, gc=False, eq=False):
    """What became of a job's push. All of it is durable before the push's message is acked.

    Settler writes it, and the Republisher alone changes it, when the lane it was to go to is gone.
    `kind` is how it is counted, None when it goes on on another lane; of one that is not delivered
    under `why`, the class of its reason. `outcome` and `reason` are for its receipt, heard of at
    `at_ms` (Unix ms, 0 for now); no `outcome`, no receipt. `moves`: it left a main lane.

    What goes on elsewhere is published first: `body` on the lane `target`, not to be taken before
    `delay_s`. `opens_for` is the task whose later lane has to be open first, or whose lane at the
    sink `opens_at` of its chain; empty when the lane is there. `wait` says what it waits for, where
    people should know.
    """

    job: Job
    kind: Kind | None = None
    outcome: Kind | None = None
    reason: str = ""
    at_ms: int = 0
    why: str = ""
    moves: bool = False
    target: str = ""
    body: bytes = b""
    delay_s: float = 0.0
    opens_for: str = ""
    opens_at: str = ""
    wait: Wait | None = None


class EndingListener(Protocol):
    """Who acts on what is durable now."""

    async def settled(
        self, endings: Sequence[Ending], finished: Sequence[Finished], progress: Sequence[Progress]
    ) -> None:
        """Hear of endings that are durable, those that are counted, and the new counts of tasks."""


class Flusher:
    """Carries endings to the receipts, the registry and the broker, in batches.

    `write_receipts` returns once those that are to have a receipt have one.
    """

    def __init__(
        self,
        broker: LaneBroker,
        registry: SeqStore,
        write_receipts: Callable[[Sequence[Ending]], Awaitable[None]],
        listeners: Sequence[EndingListener] = (),
    ) -> None:
        self._broker = broker
        self._registry = registry
        self._write_receipts = write_receipts
        self._listeners = listeners
        self._endings: list[Ending] = []
        self._settled_before: list[Taken] = []
        self._unacked = 0  # of these, while they are being acked, too
        self._since_s = 0.0
        self._flushing_since_s = 0.0
        self._due = asyncio.Event()
        self._settled = asyncio.Event()
        self.unsettled = 0

    @property
    def is_late(self) -> bool:
        """Tell whether an outcome has waited for so long that a kill now would repeat too many."""
        return self.oldest_s() > _LATEST_S

    def oldest_s(self) -> float:
        """Return for how long the oldest outcome waits to be durable, 0 when there is none."""
        since_s = self._flushing_since_s or self._since_s
        return time.monotonic() - since_s if since_s else 0.0

    def count(self, lane: Lane) -> None:
        """Count a push that has come to its end, and is not settled yet."""
        self.unsettled += 1
        lane.unsettled += 1
        self._look_at(lane)

    def count_all(self, jobs: Sequence[Job]) -> None:
        """Do as `count` for each of these."""
        self.unsettled += len(jobs)
        for job in jobs:
            job.lane.unsettled += 1
        for lane in {job.lane for job in jobs}:
            self._look_at(lane)

    def _look_at(self, lane: Lane) -> None:
        if lane.unsettled >= _LEAST_A_LANE and self._is_crowded(lane):
            lane.block(Why.CROWDED)

    def _is_crowded(self, lane: Lane) -> bool:
        """Tell whether the lane has over half the room that is left; a few are always allowed."""
        return lane.unsettled >= max(_LEAST_A_LANE, (_MOST_UNSETTLED - self.unsettled) // 2)

    def add(self, endings: Sequence[Ending]) -> None:
        """Settle pushes that are counted here, and are where they are to be."""
        self._endings.extend(endings)
        self._due.set()

    def add_new(self, endings: Sequence[Ending]) -> None:
        """Do as `add`, for outcomes just heard of: from now on they wait to be durable."""
        self._since_s = self._since_s or time.monotonic()
        self.add(endings)

    def ack(self, message: Message) -> None:
        """Ack a copy of a message of which every push was settled before it came."""
        self._settled_before.append(message.taken)
        self._unacked += 1
        self._due.set()

    async def run(self) -> None:
        """Make endings durable, then ack, for ever."""
        backoff = Backoff(log, "the registry")
        while True:
            await self._due.wait()
            self._due.clear()
            await asyncio.sleep(FLUSH_EVERY_S)
            endings, self._endings = self._endings, []
            acked, self._settled_before = self._settled_before, []
            self._flushing_since_s, self._since_s = self._since_s, 0.0
            await self._flush(endings, acked, backoff)

    async def _flush(self, endings: list[Ending], acked: list[Taken], backoff: Backoff) -> None:
        """Make endings durable; ack the messages of which all pushes are settled, and `acked`."""
        settled_before = len(acked)
        await self._write_receipts(endings)
        progress: Sequence[Progress] = []
        if moved := _moved(endings):
            await backoff.until_done(lambda: self._registry.move(moved))
        if finished := _finished(endings):
            progress = await backoff.until_done(lambda: self._registry.record(finished))
        for ending in endings:
            message = ending.job.message
            message.left -= 1
            if not message.left:
                acked.append(message.taken)
        if acked:
            await backoff.until_done(lambda: self._broker.ack(acked))
        self._unacked -= settled_before
        self._flushing_since_s = 0.0  # before lanes wake the loop, which rests while it is late
        self.release(endings)
        for listener in self._listeners:
            await listener.settled(endings, finished, progress)

    def release(self, endings: Sequence[Ending]) -> None:
        """Hold on to these no longer: they are settled, or left to others unacked."""
        self.unsettled -= len(endings)
        for lane, count in Counter([ending.job.lane for ending in endings]).items():
            lane.settled(count)
            (lane.block if self._is_crowded(lane) else lane.unblock)(Why.CROWDED)
        self._settled.set()

    async def drain(self) -> None:
        """Wait until nothing is unsettled, and what was settled before is acked."""
        while self.unsettled or self._unacked:
            self._settled.clear()
            await self._settled.wait()


def _finished(endings: list[Ending]) -> list[Finished]:
    seqs: dict[tuple[str, Kind, str], list[int]] = defaultdict(list)
    for ending in endings:
        if ending.kind is not None:
            push = ending.job.push
            why = "" if ending.kind is Kind.DELIVERED else ending.why
            seqs[push.task_id, ending.kind, why].append(push.seq)
    return [Finished(task_id, kind, found, why) for (task_id, kind, why), found in seqs.items()]


def _moved(endings: list[Ending]) -> list[Moved]:
    seqs: dict[str, list[int]] = defaultdict(list)
    for ending in endings:
        if ending.moves and ending.kind is None:
            seqs[ending.job.push.task_id].append(ending.job.push.seq)
    return [Moved(task_id, numbers) for task_id, numbers in seqs.items()]
