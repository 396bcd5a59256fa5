"""Bounds what waits on later lanes: at the limit a main lane rests until less of it waits.

Nothing is lost by that: what is left on the main lane stays there, and what comes due goes on. A
process looks at a later lane again after so many pushes of its own have gone there, so the limit
may be passed by that many for each process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from pushlane.core.errors import PushlaneError, UnknownLane
from pushlane.core.lane import Lane
from pushlane.core.retrying import Backoff, for_each, raise_first
from pushlane.lanes.ports import Broker

log = logging.getLogger("pushlane.delay_limit")

_EVERY_S = 1.0
_LOOKS_A_LIMIT = 100
_AT_ONCE = 16


class DelayLimit:
    """`lanes` are those that this process reads."""

    def __init__(
        self,
        broker: Broker,
        most: int,
        lanes: Callable[[], Iterable[Lane]],
    ) -> None:
        self._broker = broker
        self._most = most
        self._step = max(1, most // _LOOKS_A_LIMIT)
        self._lanes = lanes

    def full(self) -> int:
        """Return how many lanes rest now. It may be asked on any thread."""
        return sum(lane.later_full for lane in list(self._lanes()))

    async def run(self) -> None:
        backoff = Backoff(log, "the broker")
        while True:
            await backoff.until_done(self._look)
            await asyncio.sleep(_EVERY_S)

    async def _look(self) -> None:
        due = [lane for lane in self._lanes() if lane.later_full or lane.deferred >= self._step]
        groups = [due[first : first + _AT_ONCE] for first in range(0, len(due), _AT_ONCE)]
        await for_each(groups, self._measure_all)

    async def _measure_all(self, lanes: Sequence[Lane]) -> None:
        found = await asyncio.gather(*map(self._measure, lanes), return_exceptions=True)
        raise_first(found)

    async def _measure(self, lane: Lane) -> None:
        deferred = lane.take_deferred()
        try:
            is_full = await self._broker.backlog(lane.later.name) >= self._most
        except UnknownLane:  # dropped with its task
            return
        except PushlaneError:  # it is due still
            lane.add_deferred(deferred)
            raise
        if is_full is not lane.later_full:
            lane.set_later_full(is_full)
            self._log(lane)

    def _log(self, lane: Lane) -> None:
        if lane.later_full:
            text = "lane %s rests: %d of its pushes wait for their time (later_max)"
            log.warning(text, lane.name, self._most, extra={"action": "lane_full"})
        else:
            log.info("lane %s goes on", lane.name, extra={"action": "lane_resumed"})
