"""What is done about pushes that die: a warning, and a pause of their task.

Warnings come at once, then once a minute for each class of reasons. Each says how many died since
the last one and of which tasks, and names no recipient. Dead addresses are no news: a list always
has some, and `pushlane_dead_addresses_total` counts them.

A task is paused when a sink asks for it, or when too many of its pushes die. Those are counted over
all processes, so whoever counts past the limit sees it, and of several that do one pauses the task.
What is in flight then still lands.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from pushlane.backends.backend import Backend
from pushlane.core.endings import Ending
from pushlane.core.errors import InvalidChange, UnknownFormat
from pushlane.core.push import Kind
from pushlane.core.retrying import Backoff
from pushlane.core.task import Finished, Progress, State
from pushlane.dispatcher.tasks import KnownTasks
from pushlane.model.reasons import DEAD_ADDRESS, MOST_REASONS, OTHER, Reasons
from pushlane.model.stop_rule import StopRule, read_stop_rule
from pushlane.util.errors import UnknownTask
from pushlane.util.retrying import for_each, whenever

log = logging.getLogger("pushlane.pauses")


class PauseRequests:
    """Pauses whole tasks when a sink asks for it, once for all pushes of a task that are in flight.

    A request that does not get through is tried again until it does or the task has ended.
    """

    def __init__(self, backend: Backend, tasks: KnownTasks) -> None:
        self._backend = backend
        self._tasks = tasks
        self._asked: dict[str, str] = {}
        self._due = asyncio.Event()

    def ask(self, task_id: str, reason: str) -> None:
        """Pause the task soon, unless it does not run."""
        task = self._tasks.find(task_id)
        if task is not None and task.state is State.RUNNING:
            self._asked.setdefault(task_id, reason)
            self._due.set()

    async def run(self) -> None:
        await whenever(self._due, self._pause_all, Backoff(log, "the registry"))

    async def _pause_all(self) -> None:
        while self._asked:
            task_id, reason = next(iter(self._asked.items()))
            await self._pause(task_id, reason)
            del self._asked[task_id]

    async def _pause(self, task_id: str, reason: str) -> None:
        try:
            self._tasks.apply(await self._backend.pause(task_id, reason))
        except (InvalidChange, UnknownTask, UnknownFormat):  # it has ended, or is a newer version's
            return
        _log_pause(task_id, reason)


def _log_pause(task_id: str, reason: str) -> None:
    log.warning("task %s is paused: %s", task_id, reason, extra={"action": "task_paused"})


_death_warnings_log = logging.getLogger("pushlane.deaths")

_EVERY_S = 60.0
_MOST_TASKS = 3


@dataclass
class _Unsaid:
    """Deaths of one reason that no line has told of yet."""

    count: int = 0
    said_at_s: float | None = None
    tasks: dict[str, None] = field(default_factory=dict)

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
        _death_warnings_log.warning(
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


_AT_ONCE = 8


class _Passed(NamedTuple):
    """A task that is to be paused: `failed` of `ended` pushes, since its limit was set `anew`."""

    task_id: str
    failed: int
    ended: int
    anew: bool


class StopIfDead:
    """Keeps to the tasks' `stop_if_dead`."""

    def __init__(self, backend: Backend, tasks: KnownTasks) -> None:
        self._backend = backend
        self._tasks = tasks
        self._passed: dict[str, _Passed] = {}
        self._due = asyncio.Event()

    async def settled(
        self, endings: Sequence[Ending], finished: Sequence[Finished], progress: Sequence[Progress]
    ) -> None:
        """Hear how far tasks are, now that these seqs are counted."""
        ruled = [(one, found) for one in progress if one.failed and (found := self._rule(one))]
        if not ruled:
            return
        added: Counter[str] = Counter()
        for group in finished:
            added[group.task_id] += len(group.seqs)
        for one, (rule, since) in ruled:
            if rule.is_passed(one, added[one.task_id], since):
                ended, failed = one.finished - since[0], one.failed - since[1]
                passed = _Passed(one.task_id, failed, ended, anew=any(since))
                self._passed.setdefault(one.task_id, passed)
                self._due.set()

    async def run(self) -> None:
        await whenever(self._due, self._stop_all, Backoff(log, "the registry"))

    def _rule(self, progress: Progress) -> tuple[StopRule, tuple[int, int]] | None:
        """Return the rule that may stop a task now, and what it does not count."""
        task = self._tasks.find(progress.task_id)
        if task is None or task.stopped or task.state is not State.RUNNING:
            return None
        if task.total is not None and progress.finished >= task.total:
            return None
        rule = read_stop_rule(task.stop_if_dead)
        return rule and (rule, task.stop_since)

    async def _stop_all(self) -> None:
        await for_each(list(self._passed.values()), self._stop, _AT_ONCE)

    async def _stop(self, passed: _Passed) -> None:
        task_id = passed.task_id
        [reasons] = await self._backend.registry.reasons([task_id])
        reason = _reason(passed, reasons)
        with suppress(UnknownTask, UnknownFormat):  # it is forgotten, or is a newer version's
            task = await self._backend.stop(task_id, reason)
            self._tasks.apply(task)
            if task.reason == reason:
                _log_pause(task_id, reason)
        del self._passed[task_id]


def _reason(passed: _Passed, reasons: Reasons) -> str:
    commonest = next((one for one in reasons.dead if one != DEAD_ADDRESS), "")
    most = f", most often {commonest}" if commonest else ""
    since = " since the limit was set" if passed.anew else ""
    task_id = passed.task_id
    return (
        f"stopped: {passed.failed:,} of {passed.ended:,} died{since}{most}; fix the cause, then "
        f"pushlane resume {task_id} (dead ones: pushlane dead retry --task {task_id})"
    )
