"""Warns of pushes that die at one sink: at once, then once a minute for each class of reasons.

A line has how many died since the last one and of which tasks, and names no recipient. Dead
addresses are no news: a list always has some, and `pushlane_dead_addresses_total` counts them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from pushlane.core.endings import Ending
from pushlane.core.push import Kind
from pushlane.core.task import Finished, Progress
from pushlane.lanes.death_reasons import DEAD_ADDRESS, MOST_REASONS, OTHER

log = logging.getLogger("pushlane.deaths")

_EVERY_S = 60.0
_MOST_TASKS = 3


class _Unsaid:
    """Deaths of one reason that no line has told of yet."""

    def __init__(self) -> None:
        self.count = 0
        self.said_at_s: float | None = None
        self.tasks: dict[str, None] = {}

    def due_in_s(self, now_s: float) -> float:
        return 0.0 if self.said_at_s is None else self.said_at_s + _EVERY_S - now_s


class DeathWarnings:
    """Hears of every push that dies at the sink of this name. `clock_s` is a monotonic clock."""

    def __init__(self, sink: str, clock_s: Callable[[], float]) -> None:
        self._sink = sink
        self._clock_s = clock_s
        self._reasons: dict[str, _Unsaid] = {}
        self._heard = asyncio.Event()

    async def settled(
        self, endings: Sequence[Ending], finished: Sequence[Finished], progress: Sequence[Progress]
    ) -> None:
        """Hear of what is counted now."""
        for group in finished:
            if group.kind is Kind.DEAD and group.reason != DEAD_ADDRESS:
                for _ in group.seqs:
                    self.add(group.reason, group.task_id)

    def add(self, reason: str, task_id: str) -> None:
        """Hear of a push that died of this class of reasons."""
        if reason not in self._reasons and len(self._reasons) >= MOST_REASONS:
            reason = OTHER
        unsaid = self._reasons.setdefault(reason, _Unsaid())
        unsaid.count += 1
        if len(unsaid.tasks) <= _MOST_TASKS:
            unsaid.tasks[task_id] = None
        if unsaid.due_in_s(self._clock_s()) <= 0:
            self._say(reason, unsaid)
        else:
            self._heard.set()

    async def run(self) -> None:
        """Tell of what dies, until cancelled."""
        wait_s: float | None = None
        while True:
            if wait_s is None:
                await self._heard.wait()
                self._heard.clear()
            else:
                await asyncio.sleep(wait_s)
            wait_s = self.say_due()

    def say_due(self) -> float | None:
        """Tell of what was last told of a minute ago; return when more is due, None if nothing."""
        now_s = self._clock_s()
        waits: list[float] = []
        for reason, unsaid in self._reasons.items():
            if not unsaid.count:
                continue
            wait_s = unsaid.due_in_s(now_s)
            if wait_s <= 0:
                self._say(reason, unsaid)
            else:
                waits.append(wait_s)
        return min(waits, default=None)

    def close(self) -> None:
        """Tell of the rest, at a stop."""
        for reason, unsaid in self._reasons.items():
            if unsaid.count:
                self._say(reason, unsaid)

    def _say(self, reason: str, unsaid: _Unsaid) -> None:
        now_s, said_at_s = self._clock_s(), unsaid.said_at_s
        count = f"{unsaid.count:,} push{'es' if unsaid.count > 1 else ''} died"
        since = "" if said_at_s is None else f" in the last {max(1, round(now_s - said_at_s))} s"
        log.warning(
            "%s: %s%s: %s (%s)",
            self._sink,
            count,
            since,
            reason,
            _named(list(unsaid.tasks)),
            extra={"action": "pushes_died", "sink": self._sink, "reason": reason},
        )
        unsaid.count, unsaid.said_at_s = 0, now_s
        unsaid.tasks.clear()


def _named(tasks: list[str]) -> str:
    others = " and others" if len(tasks) > _MOST_TASKS else ""
    return f"task{'s' if len(tasks) > 1 else ''} {', '.join(tasks[:_MOST_TASKS])}{others}"
