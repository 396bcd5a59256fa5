"""What an outcome means: counted, tried again later, or buried with the reason."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from pushlane.dispatcher.job import Job
from pushlane.dispatcher.settlement.receipts import Receipt, Receipts
from pushlane.dispatcher.settlement.settler import Settler, dead_push
from pushlane.dispatcher.stats import Stats
from pushlane.lanes.push import Kind, Outcome, encode
from pushlane.lanes.task_transitions import now_ms

_WAIT_LONGEST_S = 86_400.0  # whatever a sink asks for
_PAUSED_AGAIN_S = 1.0  # so that a sink is left alone until the pause has got through


class Outcomes:
    """`pause` asks for a whole task to be paused, as a sink did.

    `backoff_s` is the wait after so many attempts when the sink names none.
    """

    def __init__(
        self,
        settler: Settler,
        receipts: Receipts,
        stats: Stats,
        pause: Callable[[str, str], None],
        backoff_s: Callable[[int], float],
    ) -> None:
        self._settler = settler
        self._receipts = receipts
        self._stats = stats
        self._pause = pause
        self._backoff_s = backoff_s

    def settle(self, job: Job, outcome: Outcome, at_ms: int = 0) -> None:
        """`at_ms` is when it was heard of, now unless it is given."""
        kind = outcome.kind
        push = job.push
        if outcome.pause_task:
            self._pause(push.task_id, outcome.reason)
        if kind is Kind.RETRY:
            return self._retry(job, outcome, at_ms)
        self._stats.outcomes[job.lane.level, kind] += 1
        if push.attempt == 1 and push.submitted_at_ms:
            waited_ms = (at_ms or now_ms()) - push.submitted_at_ms
            self._stats.waited[job.lane.level].add(waited_ms / 1000)
        if kind is Kind.DEAD:
            dead = dead_push(push.task_id, push.seq, push.attempt, outcome.reason, job.taken.body)
            receipt = self._receipts.of(job, kind, outcome.reason, at_ms)
            return self._settler.bury(job.lane, job.taken, dead, receipt)
        return self._settler.finish(job, kind, outcome.reason, at_ms)

    def delivered(self, jobs: Sequence[Job], at_ms: int) -> None:
        """`settle` of many that are delivered, at a fraction of what each would cost."""
        for level, count in Counter([job.lane.level for job in jobs]).items():
            self._stats.outcomes[level, Kind.DELIVERED] += count
        for job in jobs:
            push = job.push
            if push.submitted_at_ms and push.attempt == 1:
                waited_s = (at_ms - push.submitted_at_ms) / 1000
                self._stats.waited[job.lane.level].add(waited_s)
        self._settler.delivered(jobs, at_ms)

    def later(self, job: Job, wait_s: float) -> None:
        """It was not sent: it comes again as it is."""
        body = encode(job.push, job.taken.body) if job.push.strikes else job.taken.body
        self._again(job, body, min(wait_s, _WAIT_LONGEST_S))

    def _retry(self, job: Job, outcome: Outcome, at_ms: int) -> None:
        if outcome.pause_task:
            return self.later(job, _PAUSED_AGAIN_S)
        if job.push.attempt >= job.task.max_attempts:
            reason = f"gave up after {job.push.attempt} attempts: {outcome.reason}"
            return self.settle(job, Outcome.dead(reason), at_ms)
        self._stats.outcomes[job.lane.level, Kind.RETRY] += 1
        wait_s = self._backoff_s(job.push.attempt) if outcome.after_s is None else outcome.after_s
        wait_s = min(wait_s, _WAIT_LONGEST_S)
        due_at_ms = now_ms() + int(wait_s * 1000)
        again = replace(job.push, attempt=job.push.attempt + 1, due_at_ms=due_at_ms)
        body = encode(again, job.taken.body)
        receipt = self._receipts.of(job, Kind.RETRY, outcome.reason, at_ms)
        return self._again(job, body, wait_s, receipt)

    def _again(self, job: Job, body: bytes, delay_s: float, receipt: Receipt | None = None) -> None:
        self._settler.later(job.lane, job.taken, job.push, body, delay_s, receipt)


def backoff(first_s: float, longest_s: float) -> Callable[[int], float]:
    """Doubles with each attempt, with jitter over the upper half: retries do not come in waves."""

    def wait_s(attempt: int) -> float:
        most: float = min(longest_s, first_s * 2 ** min(attempt - 1, 30))
        return most * random.uniform(0.5, 1.0)

    return wait_s
