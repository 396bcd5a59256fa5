"""Puts pushes on other lanes: retries and forwards on theirs, dead ones on the dead-letter lane.

What has gathered is published a lane at a time, and tried again until it is there. Only then is the
message that a push came on acked, which the settler does.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from pushlane.dispatcher.backoff import Backoffs
from pushlane.dispatcher.known_tasks import KnownTasks
from pushlane.dispatcher.lane import OpenLane
from pushlane.dispatcher.messages import Held
from pushlane.dispatcher.settlement.receipts import Receipt, Receipts
from pushlane.lanes.backend import Backend
from pushlane.lanes.errors import PushlaneError, UnknownFormat, UnknownLane, UnknownTask
from pushlane.lanes.naming import is_dead, is_pool, task_of
from pushlane.lanes.push import Kind

log = logging.getLogger("pushlane.settle")

FLUSH_EVERY_S = 0.01
_GONE = "its lane was dropped"


class Ack(msgspec.Struct, frozen=True, gc=False):
    """A push that is finished, or that waits on another lane now.

    `moves` says that it left a main lane for another one, `reason` of what a dead one died, as a
    class. One is made for every push: a struct
    takes a sixth of the time of a named tuple.
    """

    lane: OpenLane
    taken: Held
    task_id: str
    seq: int
    kind: Kind | None
    receipt: Receipt | None = None
    moves: bool = False
    reason: str = ""


class Republish(NamedTuple):
    """A body to publish before `end`. A lane that is gone went with its task: it is dropped.

    `opens_for` is the task whose later lane has to be open first, or whose lane at the sink
    `opens_at` of its chain; none when the lane is there.
    """

    target: str
    body: bytes
    end: Ack
    delay_s: float = 0.0
    opens_for: str = ""
    opens_at: str = ""


class AckListener(Protocol):
    """Acks what a push came on, once the push is on another lane."""

    def end(self, ends: Sequence[Ack]) -> None:
        """Hear of pushes that are published."""

    def give_up(self, ends: Sequence[Ack]) -> None:
        """Hear of pushes that only a process of a newer version can publish."""


class FurtherLanes:
    """Opens the later lane of a task when a push first has to wait for its time, and its lane at a
    later sink of its chain when a push first goes on there.

    An idle reader costs memory in every process, so a task that needs neither has none.
    """

    def __init__(
        self,
        backend: Backend,
        tasks: KnownTasks,
    ) -> None:
        self._backend = backend
        self._tasks = tasks
        self._opening: dict[tuple[str, str], asyncio.Lock] = {}

    async def ensure(self, task_id: str, sink: str = "") -> None:
        """Return once the task has a later lane, or its lane at this sink, or has ended.

        Raises:
            PushlaneError: broker or registry does not answer, or many change the task at once.
        """
        if self._is_settled(task_id, sink):
            return
        async with self._opening.setdefault((task_id, sink), asyncio.Lock()):
            if not self._is_settled(task_id, sink):
                await self._open(task_id, sink)
        self._opening.pop((task_id, sink), None)

    def _is_settled(self, task_id: str, sink: str) -> bool:
        task = self._tasks.find(task_id)
        if task is None or task.state.is_terminal:
            return task is not None
        return sink in task.reached if sink else task.has_later

    async def _open(self, task_id: str, sink: str) -> None:
        backend = self._backend
        try:
            self._tasks.apply(
                await (backend.reach(task_id, sink) if sink else backend.open_later(task_id))
            )
        except UnknownTask:  # it went with its lanes, as a publish will tell
            return


class Republisher:
    """Publishes what goes on on another lane, and tells the settler."""

    def __init__(
        self, backend: Backend, tasks: KnownTasks, receipts: Receipts, settler: AckListener
    ) -> None:
        self._backend = backend
        self._further_lanes = FurtherLanes(backend, tasks)
        self._receipts = receipts
        self._settler = settler
        self._moves: list[Republish] = []
        self._moved = asyncio.Event()
        self._backoffs = Backoffs(log)

    def add(self, move: Republish) -> None:
        """Publish it with the next batch."""
        self._moves.append(move)
        self._moved.set()

    async def run(self) -> None:
        """Publish what has gathered, each lane for itself: one to be opened holds up no other."""
        async with asyncio.TaskGroup() as publishing:
            while True:
                await self._moved.wait()
                self._moved.clear()
                await asyncio.sleep(FLUSH_EVERY_S)
                moves, self._moves = self._moves, []
                for group in _by_lane(moves):
                    publishing.create_task(self._publish(group))

    async def _publish(self, moves: list[Republish]) -> None:
        """`moves` are to the same lane, with the same delay. Tried until they are there."""
        target = moves[0].target
        while True:
            try:
                ends = await self._publish_once(moves)
                break
            except UnknownFormat:  # unacked, they go to processes of a newer version
                self._settler.give_up([move.end for move in moves])
                return
            except PushlaneError as error:
                await self._backoffs.wait(target, error)
        self._backoffs.reset(target)
        self._settler.end(ends)

    async def _publish_once(self, moves: list[Republish]) -> list[Ack]:
        target, _, _, delay_s, opens_for, opens_at = moves[0]
        bodies = [move.body for move in moves]
        broker = self._backend.broker
        if opens_for:
            await self._further_lanes.ensure(opens_for, opens_at)
        try:
            await broker.publish(target, bodies, delay_s=delay_s)
        except UnknownLane:
            if is_dead(target) or is_pool(target):  # made by its first dead push, or lost
                await broker.open_lane(target)
                await broker.publish(target, bodies, delay_s=delay_s)
            elif await self._is_over(target):
                return [self._dropped(move) for move in moves]
            else:  # not heard of yet, or about to be made anew
                raise
        return [move.end for move in moves]

    async def _is_over(self, lane: str) -> bool:
        """Tell whether the lane went with its task. Raises TaskInDoubt while nobody knows."""
        task_id = task_of(lane)
        task = await self._backend.find(task_id) if task_id is not None else None
        return task is None or task.state.is_terminal

    def _dropped(self, move: Republish) -> Ack:
        """Count a push as dropped whose lane went with its task."""
        receipt = self._receipts.of_dropped(move.end.lane, move.end.taken, _GONE)
        return replace(move.end, kind=Kind.DROPPED, receipt=receipt)


def _by_lane(moves: list[Republish]) -> Iterable[list[Republish]]:
    groups: dict[tuple[str, float], list[Republish]] = defaultdict(list)
    for move in moves:
        groups[move.target, move.delay_s].append(move)
    return groups.values()
