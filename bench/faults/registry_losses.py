"""Faults by which Redis does not have a task that goes on, and pushes whose task nobody has.

A task that is not there now is not over. So nothing of one that goes on may be lost, and none of
its lanes may go; and what was cancelled stays cancelled, on whichever side of a failover.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence

from bench.backlog import BUNDLE
from bench.faults.outages import stall
from bench.faults.stream import Stream
from bench.resident import resident_kib
from pushlane.core.names import later_lane, pool_lane
from pushlane.core.push import Push, encode
from pushlane.core.task import State
from pushlane.model.names import new_task_id
from pushlane.wire import packed

_SKIPPED = 10
_STRIKES = 5
_LOOK_EVERY_S = 0.05
_LOOK_RARELY_S = 0.5
_IN_FLIGHT_S = 2.0
_APART_S = 0.5
_SETTLED_DEADLINE_S = 60.0
_STARTS_IN_S = 15.0
_DROPPED_DEADLINE_S = 120.0
_STALL_S = 15.0  # over the 10 s that a publish may take
_MANY = 100_000
_MOST_GROWTH_KIB = 64 * 1024


async def empty_between_reads(stream: Stream) -> float:
    """Redis is emptied between the check that it is filled and a read of tasks, if they are two."""
    services = stream.services
    path = services.redis_path
    for _ in range(_STRIKES):
        path.strike_before(_reads_tasks, random.randrange(_SKIPPED), services.empty_redis)
        await stream.until(lambda: path.has_struck, "nobody asked Redis anything")
        await stream.oracle.arrivals(stream.load.slots)
    await _no_lane_is_missing(stream)
    return time.time()


def _reads_tasks(asked: bytes) -> bool:
    """Tell what reads tasks from what counts their pushes, or changes one."""
    return b":tasks" in asked and b":seen" not in asked


class _Failover:
    """From one Redis to another that has copied it until the two were parted, and back."""

    def __init__(self, stream: Stream) -> None:
        self._services = stream.services
        self._filled = f"{{{stream.namespace}}}:filled"
        self._server = f"{{{stream.namespace}}}:server"
        self._old = self._services.ports.redis
        self._new = self._services.start_second_redis()

    async def copy(self) -> None:
        """Have the new one copy the old, and wait until it has all."""
        await self._copied(self._new, self._old)

    async def promote(self) -> None:
        """Part them. Dispatchers use the new one, and fill it; who writes still uses the old."""
        services = self._services
        services.replica_path.cut()
        services.ask_redis(self._new, "REPLICAOF NO ONE")
        services.redis_path.lead_to(self._new)
        await self._until_filled(self._new)

    def meet(self) -> None:
        """Have those who write use the new one too."""
        self._services.own_redis_path.lead_to(self._new)

    async def fill_again(self) -> None:
        self._services.ask_redis(self._new, f"DEL {self._filled} {self._server}")
        await self._until_filled(self._new)

    async def go_back(self) -> None:
        """Have everybody use the old one again, with all that the new one has."""
        services = self._services
        await self._copied(self._old, self._new)
        paths = (services.redis_path, services.own_redis_path)
        for path in paths:
            path.stall()
        await asyncio.sleep(_APART_S)  # what was on its way is copied
        services.ask_redis(self._old, "REPLICAOF NO ONE")
        for path in paths:
            path.lead_to(self._old)
            path.heal()
        services.end_second_redis()

    async def _copied(self, replica: int, master: int) -> None:
        self._services.replicate(replica, master)
        said = "master_link_status:up"
        await _until(
            lambda: said in self._services.ask_redis(replica, "INFO replication"),
            "the replica has no copy",
        )

    async def _until_filled(self, port: int) -> None:
        """Wait until its registry is filled by whoever uses it: it has the id of this server."""

        def is_filled() -> bool:
            found = re.search(r"run_id:(\w+)", self._services.ask_redis(port, "INFO server"))
            assert found is not None
            return found[1] in self._services.ask_redis(port, f"GET {self._filled}")

        await _until(is_filled, "nobody fills the registry")


async def fail_over(stream: Stream) -> float:
    """The master is cut off and lives on, while a replica that lacks its last writes takes over.

    These register a task, seal one and cancel one, when the new one is already filled. What is
    cancelled would have started some seconds later.
    """
    failover, feeder = _Failover(stream), stream.feeder
    await failover.copy()
    begun, doomed = await feeder.begin(), await feeder.begin(_STARTS_IN_S)
    start_s = time.time() + _STARTS_IN_S
    await failover.promote()
    registered = await feeder.write()
    await feeder.seal(begun)
    await feeder.cancel(doomed)
    failover.meet()
    await _until_seen(stream, sealed=(registered, begun), cancelled=doomed)
    await failover.fill_again()
    await asyncio.sleep(max(0.0, start_s - time.time()) + _IN_FLIGHT_S)
    if doomed in stream.oracle.tally.last_of:
        stream.broken.append("a push of a cancelled task was sent")
    await _no_lane_is_missing(stream)
    await failover.go_back()
    return time.time()


async def _until_seen(stream: Stream, sealed: Sequence[str], cancelled: str) -> None:
    """Wait until the Redis in use has what was written to the other."""
    deadline = time.monotonic() + _SETTLED_DEADLINE_S
    while time.monotonic() < deadline:
        found = await stream.backend.registry.some([*sealed, cancelled])
        tasks = {task.id: task for task in found.tasks}
        is_cancelled = cancelled in tasks and tasks[cancelled].state is State.CANCELLED
        if is_cancelled and all(one in tasks and tasks[one].total for one in sealed):
            return
        await asyncio.sleep(_LOOK_EVERY_S)
    stream.broken.append("what was written to the other Redis was not seen")


async def push_of_forgotten(stream: Stream) -> float:
    """Pushes on the pool's lane of a task that nobody has, nor a word that it was forgotten."""
    lane, began_s = await _publish_of_nobody(stream, 1_000)
    await stream.went_on(began_s)
    await _until_dropped(stream, lane, began_s)
    return time.time()


async def many_of_forgotten(stream: Stream) -> float:
    """Very many of them cost a dispatcher little memory."""
    fork = stream.forks[0]
    before = peak = resident_kib(fork.pid)
    lane, began_s = await _publish_of_nobody(stream, _MANY)
    dropped = asyncio.create_task(_until_dropped(stream, lane, began_s))
    while not dropped.done():
        peak = max(peak, resident_kib(fork.pid))
        await asyncio.sleep(_LOOK_EVERY_S)
    if peak - before > _MOST_GROWTH_KIB:
        stream.broken.append(f"it took {(peak - before) / 1024:.0f} MiB more")
    return time.time()


async def _publish_of_nobody(stream: Stream, pushes: int) -> tuple[str, float]:
    task_id = new_task_id()
    lane = pool_lane(task_id, 1)
    await stream.backend.broker.open_lane(lane)
    for first in range(1, pushes + 1, _MANY // 10):
        last = min(first + _MANY // 10, pushes + 1)
        bodies = [encode(Push(task_id, seq, f"r{seq}")) for seq in range(first, last)]
        messages = [one.message for one in packed(bodies, BUNDLE)]
        await stream.backend.broker.publish(lane, messages)
    return lane, time.time()


async def _until_dropped(stream: Stream, lane: str, since_s: float) -> None:
    """Wait until none is on the lane, nor on the later lane, where nothing else waits."""
    broker = stream.backend.broker
    end = await broker.end_of(lane)
    while time.time() < since_s + _DROPPED_DEADLINE_S:
        if await broker.is_past(lane, end) and not await broker.backlog(later_lane(lane)):
            return
        await asyncio.sleep(_LOOK_RARELY_S)
    stream.broken.append("pushes of a forgotten task were not dropped within two minutes")


async def stall_broker_while_retried(stream: Stream) -> float:
    """Half of the pushes are to be tried again, and the broker answers nothing for a while."""
    await stream.oracle.behave("500", share=0.5)
    await stream.oracle.arrivals(5 * stream.load.slots)
    ended_s = await stall(stream.services.broker_path, _STALL_S)
    await stream.oracle.behave()
    return ended_s


async def _no_lane_is_missing(stream: Stream) -> None:
    """Each task of which something is still to arrive has its lane."""
    lanes = set(await stream.backend.broker.lanes())
    arrived = Counter(task_id for task_id, _ in stream.oracle.tally.kept)
    lost = [
        task_id
        for task_id, total in stream.feeder.totals.items()
        if arrived[task_id] < total and stream.feeder.lanes[task_id] not in lanes
    ]
    if lost:
        stream.broken.append(f"{len(lost)} unfinished tasks have lost their lane")


async def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _SETTLED_DEADLINE_S
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError(what)
        await asyncio.sleep(_LOOK_EVERY_S)
