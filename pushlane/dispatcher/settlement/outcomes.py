"""Acts on outcomes: a push is counted, tried again later, or buried with the reason.

A sink may also ask for the whole task to be paused.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from pushlane.dispatcher.job import Job
from pushlane.dispatcher.known_tasks import KnownTasks
from pushlane.dispatcher.reasons import as_label, death_class
from pushlane.dispatcher.settlement.death_warnings import DeathWarnings
from pushlane.dispatcher.settlement.receipts import Receipt, Receipts, eligible_ms
from pushlane.dispatcher.settlement.settler import Settler, dead_push
from pushlane.dispatcher.stats import Stats
from pushlane.lanes.backend import Backend
from pushlane.lanes.death_reasons import DEAD_ADDRESS
from pushlane.lanes.errors import InvalidChange, UnknownFormat, UnknownTask
from pushlane.lanes.push import Arrival, DeadPush, Kind, Outcome, Scope, encode
from pushlane.lanes.put_off import Wait, WaitReason
from pushlane.lanes.retrying import Backoff, whenever
from pushlane.lanes.task import DeliveryMode, State
from pushlane.lanes.task_transitions import now_ms

log = logging.getLogger("pushlane.pauses")

_WAIT_LONGEST_S = 86_400.0  # whatever a sink asks for
_PAUSED_AGAIN_S = 1.0  # so that a sink is left alone until the pause has got through


class PauseRequests:
    """Pauses whole tasks when a sink asks for it, once for all pushes of a task that are in flight.

    A request that does not get through is tried again until it does or the task has ended.
    """

    def __init__(
        self,
        backend: Backend,
        tasks: KnownTasks,
    ) -> None:
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
        log.warning("task %s is paused: %s", task_id, reason, extra={"action": "task_paused"})


class Outcomes:
    """Does what follows from an outcome.

    `backoff_s` is the wait after so many attempts when the sink names none. `sink` is where this
    line delivers: what it cannot deliver there goes on along the task's chain. `hosts_code` says
    that its reasons are somebody's own words.
    """

    def __init__(
        self,
        sink: str,
        settler: Settler,
        receipts: Receipts,
        stats: Stats,
        pauses: PauseRequests,
        warnings: DeathWarnings,
        backoff_s: Callable[[int], float],
        *,
        hosts_code: bool,
    ) -> None:
        self._hosts_code = hosts_code
        self._sink = sink
        self._settler = settler
        self._receipts = receipts
        self._stats = stats
        self._pauses = pauses
        self._warnings = warnings
        self._backoff_s = backoff_s

    def passed_on(self, job: Job, outcome: Outcome) -> Outcome:
        """Return the outcome of a dead push as of one that goes on to the next sink, if any.

        What may have arrived stays dead: the next sink would send it a second time. An answer about
        the push itself says that it has not.
        """
        if outcome.kind is not Kind.DEAD or outcome.arrival is Arrival.UNKNOWN:
            return outcome
        goes_to = job.task.next_sink(self._sink, job.push)
        if not goes_to:
            return outcome
        is_sure = outcome.scope in (Scope.PUSH, Scope.RECIPIENT)
        arrival = Arrival.REFUSED if is_sure else outcome.arrival
        return replace(outcome, kind=Kind.RETRY, goes_to=goes_to, arrival=arrival)

    def settle(self, job: Job, outcome: Outcome, at_ms: int = 0) -> None:
        """Settle a push by its outcome, heard of at `at_ms`: now unless that is given."""
        kind = outcome.kind
        push = job.push
        if outcome.goes_to:
            return self._pass_on(job, outcome, at_ms)
        if outcome.pause_task:
            self._pauses.ask(push.task_id, outcome.reason)
        if kind is Kind.RETRY:
            return self._retry(job, outcome, at_ms)
        self._stats.outcomes[job.lane.level, kind] += 1
        if push.attempt == 1 and push.submitted_at_ms:
            self._waited(job, at_ms or now_ms())
        if kind is Kind.DEAD:
            dead = dead_push(
                push.task_id, push.seq, push.attempt, outcome.reason, job.taken.body, self._sink
            )
            self._stats.dead.add(self._label(outcome))
            if outcome.scope is Scope.RECIPIENT:
                return self._bury(job, dead, DEAD_ADDRESS, at_ms)
            reason = death_class(outcome.reason, is_own_words=self._hosts_code)
            return self._bury(job, dead, reason, at_ms)
        return self._settler.finish(job, kind, outcome.reason, at_ms)

    def malformed(self, job: Job, dead: DeadPush) -> None:
        """Bury a push of a task that cannot be read."""
        self._stats.outcomes[job.lane.level, Kind.DEAD] += 1
        self._stats.dead.add("malformed")
        self._bury(job, dead, "malformed")

    def delivered(self, jobs: Sequence[Job], at_ms: int) -> None:
        """Settle many that are delivered, at a fraction of what each would cost alone."""
        for level, count in Counter([job.lane.level for job in jobs]).items():
            self._stats.outcomes[level, Kind.DELIVERED] += count
        for job in jobs:
            push = job.push
            if push.submitted_at_ms and push.attempt == 1:
                self._waited(job, at_ms)
        self._settler.delivered(jobs, at_ms)

    def _waited(self, job: Job, at_ms: int) -> None:
        """Count for how long a push has waited since it could first go: what was asked for is no
        delay.
        """
        push, task = job.push, job.task
        since_ms = push.submitted_at_ms
        if push.not_before_ms or task.not_before_ms or task.quiet:
            since_ms = eligible_ms(task, push)
        self._stats.waited[job.lane.level].add(max(0, at_ms - since_ms) / 1000)

    def later(self, job: Job, wait_s: float) -> None:
        """Offer a push that was not sent again as it is, after `wait_s`."""
        body = encode(job.push, job.taken.body) if job.push.strikes else job.taken.body
        self._again(job, body, min(wait_s, _WAIT_LONGEST_S))

    def _retry(self, job: Job, outcome: Outcome, at_ms: int) -> None:
        if outcome.pause_task:
            return self.later(job, _PAUSED_AGAIN_S)
        if job.push.attempt >= job.task.max_attempts:
            attempts = "1 attempt" if job.push.attempt == 1 else f"{job.push.attempt} attempts"
            reason = f"gave up after {attempts}: {outcome.reason}"
            may_repeat = job.task.delivery is DeliveryMode.AT_LEAST_ONCE
            arrival = Arrival.FAILED if may_repeat else outcome.arrival
            return self.settle(
                job, self.passed_on(job, Outcome.dead(reason, arrival=arrival)), at_ms
            )
        self._count_retry(job, outcome)
        wait_s = self._backoff_s(job.push.attempt) if outcome.after_s is None else outcome.after_s
        wait_s = min(max(wait_s, 0.0), _WAIT_LONGEST_S)
        due_at_ms = now_ms() + int(wait_s * 1000)
        again = replace(job.push, attempt=max(job.push.attempt, 0) + 1, due_at_ms=due_at_ms)
        body = encode(again, job.taken.body)
        receipt = self._receipts.of(job, Kind.RETRY, outcome.reason, at_ms)
        return self._again(job, body, wait_s, receipt)

    def _bury(self, job: Job, dead: DeadPush, reason: str, at_ms: int = 0) -> None:
        if reason != DEAD_ADDRESS:
            self._warnings.add(reason, dead.task_id)
        receipt = self._receipts.of(job, Kind.DEAD, dead.reason, at_ms)
        self._settler.bury(job.lane, job.taken, dead, receipt, reason)

    def _pass_on(self, job: Job, outcome: Outcome, at_ms: int) -> None:
        """Let a push begin anew at the next sink of its chain."""
        self._count_retry(job, outcome)
        push = replace(job.push, attempt=1, due_at_ms=0, strikes=0)
        reason = f"goes on to {outcome.goes_to}: {outcome.reason}"
        receipt = self._receipts.of(job, Kind.RETRY, reason, at_ms)
        body = encode(push, job.taken.body)
        self._settler.pass_on(job.lane, job.taken, job.push, outcome.goes_to, body, receipt)

    def _count_retry(self, job: Job, outcome: Outcome) -> None:
        self._stats.outcomes[job.lane.level, Kind.RETRY] += 1
        self._stats.retries.add(self._label(outcome))

    def _label(self, outcome: Outcome) -> str:
        return as_label(outcome.reason, is_own_words=self._hosts_code)

    def _again(self, job: Job, body: bytes, delay_s: float, receipt: Receipt | None = None) -> None:
        wait = Wait(WaitReason.RETRY, now_ms() + round(delay_s * 1000))
        self._settler.later(job.lane, job.taken, job.push, body, delay_s, receipt, wait)


def backoff(first_s: float, longest_s: float) -> Callable[[int], float]:
    """Double the wait with each attempt, with jitter over its upper half: retries make no waves."""

    def wait_s(attempt: int) -> float:
        most: float = min(longest_s, first_s * 2 ** min(attempt - 1, 30))
        return most * random.uniform(0.5, 1.0)

    return wait_s
