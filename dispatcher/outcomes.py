"""What an outcome means: counted, tried again later, or buried with the reason."""

from __future__ import annotations

import random
from collections.abc import Callable

from msgspec.structs import replace

from dispatcher.job import Job
from dispatcher.settle import Settler, dead_push
from dispatcher.stats import Stats
from lanes.life import now_ms
from lanes.push import Kind, Outcome, encode

_RETRY_FIRST_S = 1.0
_RETRY_LONGEST_S = 300.0
_WAIT_LONGEST_S = 86_400.0  # whatever a sink asks for
_PAUSED_AGAIN_S = 1.0  # so that a sink is left alone until the pause has got through


class Outcomes:
    """`pause` asks for a whole task to be paused, as a sink did."""

    def __init__(self, settler: Settler, stats: Stats, pause: Callable[[str, str], None]) -> None:
        self._settler = settler
        self._stats = stats
        self._pause = pause

    def settle(self, job: Job, outcome: Outcome) -> None:
        kind = outcome.kind
        push = job.push
        if kind is Kind.RETRY:
            return self._retry(job, outcome)
        self._stats.outcomes[job.lane.level, kind] += 1
        if push.attempt == 1 and push.submitted_at_ms:
            self._stats.waited[job.lane.level].add((now_ms() - push.submitted_at_ms) / 1000)
        if kind is Kind.DEAD:
            dead = dead_push(push.task_id, push.seq, push.attempt, outcome.reason, job.taken.body)
            return self._settler.bury(job.lane, job.taken, dead)
        return self._settler.finish(job.lane, job.taken, push.task_id, push.seq, kind)

    def later(self, job: Job, wait_s: float) -> None:
        """It was not sent: it comes again as it is."""
        self._again(job, job.taken.body, wait_s)

    def _retry(self, job: Job, outcome: Outcome) -> None:
        if outcome.pause_task:
            self._pause(job.push.task_id, outcome.reason)
            return self.later(job, _PAUSED_AGAIN_S)
        if job.push.attempt >= job.task.max_attempts:
            reason = f"gave up after {job.push.attempt} attempts: {outcome.reason}"
            return self.settle(job, Outcome.dead(reason))
        self._stats.outcomes[job.lane.level, Kind.RETRY] += 1
        wait_s = _backoff_s(job.push.attempt) if outcome.after_s is None else outcome.after_s
        body = encode(replace(job.push, attempt=job.push.attempt + 1))
        return self._again(job, body, min(wait_s, _WAIT_LONGEST_S))

    def _again(self, job: Job, body: bytes, delay_s: float) -> None:
        self._settler.later(job.lane, job.taken, job.push, body, delay_s)


def _backoff_s(attempt: int) -> float:
    """Exponential with full jitter over the upper half, so that retries do not come in waves."""
    longest: float = min(_RETRY_LONGEST_S, _RETRY_FIRST_S * 2 ** min(attempt - 1, 30))
    return longest * random.uniform(0.5, 1.0)
