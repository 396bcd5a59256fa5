"""Looks at all tasks and processes every few seconds, while this process leads.

It only reads. What it finds is shown to Prometheus, and told to the other processes with what this
one says of itself. Who leads no more shows nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from pushlane.backends.backend import Backend
from pushlane.core.retrying import Backoff
from pushlane.core.task import Weights
from pushlane.core.turns import EVERY_APP
from pushlane.dispatcher.known_tasks import KnownTasks
from pushlane.dispatcher.leader.backlogs import Backlogs, TaskBacklog
from pushlane.dispatcher.leader.survey import Summary, SurveyInput, summarized
from pushlane.dispatcher.leading.aside import aside
from pushlane.dispatcher.leading.figures import LeaderFigures
from pushlane.model.limits import Limits, Subject
from pushlane.model.load import spent_of
from pushlane.model.presence import DrainFigures

log = logging.getLogger("pushlane.survey")

EVERY_S = 5.0
STALE_S = 30.0
"""Figures that are older are shown to nobody, unless the pause behind a long look is longer."""

_LONGEST_PAUSE_S = 60.0
_LOOK_AGAIN_S = 0.5
_MOST_OF_THE_TIME = 0.05


class Survey:
    """Keeps the figures of all processes while `leads` says that this one leads.

    `weights` and `limits` are those in force, `target_s` is the setting drain_target_s.
    `tell` is called when there are new figures.
    """

    def __init__(
        self,
        backend: Backend,
        tasks: KnownTasks,
        leads: Callable[[], bool],
        weights: Callable[[], Weights],
        limits: Callable[[], Limits],
        target_s: float,
        tell: Callable[[], None],
        clock_ms: Callable[[], int],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend = backend
        self._tasks = tasks
        self._leads = leads
        self._weights = weights
        self._limits = limits
        self._target_s = target_s
        self._tell = tell
        self._clock_ms = clock_ms
        self._clock_s = clock_s
        self._backlogs = Backlogs(backend, tasks.active, clock_ms)
        self._busy_since_ms: dict[str, int] = {}
        self._odd: Mapping[str, str] = {}
        self._found: Summary | None = None
        self._found_at_s = 0.0
        self._pause_s = EVERY_S

    def figures(self) -> LeaderFigures | None:
        """Return the figures for Prometheus, None unless this process leads and has looked."""
        found = self._known()
        return found.figures if found else None

    def drain(self) -> DrainFigures | None:
        """Return the figures for autoscalers, None unless this process leads and has looked."""
        found = self._known()
        return found.drain if found else None

    def _known(self) -> Summary | None:
        found, at_s = self._found, self._found_at_s
        is_new = self._clock_s() < at_s + STALE_S + (self._pause_s - EVERY_S)
        return found if found is not None and is_new and self._leads() else None

    async def run(self) -> None:
        """Look while this process leads, for ever."""
        backoff = Backoff(log, "what the figures of all processes need")
        await self._tasks.synced.wait()
        while True:
            if not self._leads():
                self._forget()
                await asyncio.sleep(_LOOK_AGAIN_S)
                continue
            await backoff.until_done(self.look)
            await asyncio.sleep(self._pause_s)

    async def look(self) -> None:
        """Look once, and find out how long to pause after it.

        Raises:
            PushlaneError: the registry or the broker does not answer.
        """
        began_s = self._clock_s()
        backlogs = await self._backlogs.look()
        processes = await self._backend.presence.list()
        limits, now_ms = self._limits(), self._clock_ms()
        subjects = await aside(lambda: _subjects(limits, backlogs))
        found = SurveyInput(
            backlogs=backlogs,
            processes=[one for one in processes if one.kind == "dispatcher"],
            weights=self._weights(),
            limits=limits,
            target_s=self._target_s,
            now_ms=now_ms,
            busy_since_ms=self._busy_since_ms,
            spent=await spent_of(self._backend.limiter, subjects, limits, now_ms),
        )
        summary = await aside(lambda: summarized(found))
        since_ms = self._busy_since_ms
        self._busy_since_ms = {one: since_ms.get(one, found.now_ms) for one in summary.busy}
        self._tell_odd(summary.odd)
        self._found, self._found_at_s = summary, self._clock_s()
        pause_s = max(EVERY_S, (self._found_at_s - began_s) / _MOST_OF_THE_TIME)
        self._pause_s = min(_LONGEST_PAUSE_S, pause_s)
        self._tell()

    def _tell_odd(self, odd: Mapping[str, str]) -> None:
        """Say of each task that the figures leave out why, once."""
        for task_id in odd.keys() - self._odd.keys():
            log.warning(
                "the figures to drain leave out task %s: when it may go cannot be told (%s); see "
                "`pushlane task show %s`",
                task_id,
                odd[task_id],
                task_id,
                extra={"action": "task_left_out"},
            )
        self._odd = odd

    def _forget(self) -> None:
        self._found = None
        self._busy_since_ms = {}


def _subjects(limits: Limits, backlogs: Sequence[TaskBacklog]) -> set[Subject]:
    """Return whom limits may concern."""
    apps = {one.task.app for one in backlogs} if limits else ()
    return {*limits, *(Subject("app", app) for app in apps)} - {Subject("app", EVERY_APP)}
