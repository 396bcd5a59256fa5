"""Knows of lanes that tasks share when nothing of an ended task can come off them any more.

Such a lane is never dropped, so that is known by where its end once was: when all up to there is
acked, whatever ended before that look has nothing left on it. One end is remembered a lane; if it
is waited for long, since something has to wait for its time there, it is kept for the next leader.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable

import msgspec

from pushlane.backends.backend import Backend
from pushlane.core.names import is_pool, later_lane
from pushlane.core.retrying import for_each
from pushlane.core.task import Task, now_ms

CLOCKS_APART_MS = 600_000
_KIND = "passed-lane"
_LONG_MS = 3_600_000
_AGAIN_S = 5.0
_AT_ONCE = 8
_ENDS_A_LOOK = 2  # the first may be from before the task ended


class _Look(msgspec.Struct, array_like=True):
    """A look at a lane: where its end was, and when."""

    at_ms: int
    end: tuple[int, int]
    is_kept: bool = False


class SharedLanes:
    """`clock_ms` is a clock in Unix milliseconds that never steps, `clock_s` a monotonic one."""

    def __init__(
        self,
        backend: Backend,
        clock_ms: Callable[[], int] = now_ms,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._broker = backend.broker
        self._documents = backend.documents
        self._clock_ms = clock_ms
        self._clock_s = clock_s
        self._looks: dict[str, _Look] = {}
        self._past_ms: dict[str, int] = {}
        self._again_s: dict[str, float] = {}
        self._waiting: dict[str, list[tuple[int, str]]] = {}

    def holds_up(self, task: Task, ended_ms: int) -> bool:
        """True while something of a task that ended by then may be on a lane that it shares.

        If so, `look` gives its id once there is nothing of it on that one.
        """
        for lane in _shared_lanes(task):
            if self._past_ms.get(lane, 0) < ended_ms:
                heapq.heappush(self._waiting.setdefault(lane, []), (ended_ms, task.id))
                return True
        return False

    async def look(self) -> list[str]:
        """The tasks that waited for a lane, and do so no more: they may have to for another."""
        now_s = self._clock_s()
        due = [lane for lane in self._waiting if now_s >= self._again_s.get(lane, 0.0)]
        await for_each(due, self._look, _AT_ONCE)
        over: list[str] = []
        for lane in due:
            waiting = self._waiting[lane]
            while waiting and waiting[0][0] <= self._past_ms.get(lane, 0):
                over.append(heapq.heappop(waiting)[1])
            if not waiting:
                del self._waiting[lane]
        return over

    async def _look(self, lane: str) -> None:
        latest_ms, _ = max(self._waiting[lane])
        for _ in range(_ENDS_A_LOOK):
            look = self._looks.get(lane) or await self._first(lane)
            if not await self._broker.is_past(lane, look.end):
                self._again_s[lane] = self._clock_s() + _AGAIN_S
                return await self._keep(lane, look)
            self._past_ms[lane] = max(look.at_ms, self._past_ms.get(lane, 0))
            self._looks.pop(lane, None)
            if look.at_ms >= latest_ms:
                return None
        return None

    async def _first(self, lane: str) -> _Look:
        """The one that an earlier leader waited for, on its clock, or else the end of now."""
        if lane not in self._past_ms and (kept := await self._documents.get(_KIND, lane)):
            look = msgspec.msgpack.decode(kept.body, type=_Look)
            self._looks[lane] = _Look(look.at_ms - CLOCKS_APART_MS, look.end, is_kept=True)
        else:
            self._looks[lane] = _Look(self._clock_ms(), await self._broker.end_of(lane))
        return self._looks[lane]

    async def _keep(self, lane: str, look: _Look) -> None:
        if look.is_kept or self._clock_ms() - look.at_ms < _LONG_MS:
            return
        before = await self._documents.get(_KIND, lane)
        body = msgspec.msgpack.encode(look)
        await self._documents.put(_KIND, lane, body, before.version if before else None)
        look.is_kept = True


def _shared_lanes(task: Task) -> list[str]:
    homes = {lane for lane in (task.first_lane, task.lane) if is_pool(lane)}
    return [lane for home in sorted(homes) for lane in (home, later_lane(home))]
