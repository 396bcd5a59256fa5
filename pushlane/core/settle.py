"""Says what follows from an outcome: a push is counted, tried again later, goes on, or is buried.

What it says is an `Ending`, which is made durable before the push's message is acked
(`core.endings`). A sink may also ask for the whole task to be paused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from pushlane.core.endings import Ending, Flusher, Wait, WaitReason
from pushlane.core.lane import Job, Message
from pushlane.core.names import DEAD_LANE, dead_lane, is_chained, is_later, is_pool, lane_at
from pushlane.core.ports import Counts
from pushlane.core.push import LARGEST, Arrival, DeadPush, Kind, Outcome, Scope, encode, encode_dead
from pushlane.core.republish import Republisher
from pushlane.core.task import DeliveryMode, OnUnknown, Task, now_ms

_WAIT_LONGEST_S = 86_400.0  # whatever a sink asks for
_PAUSED_AGAIN_S = 1.0  # so that a sink is left alone until the pause has got through
_DELAY_STEP_S = 0.1
_REASON_LONGEST = 1_000
_MALFORMED = "malformed"


class Settler:
    """Ends pushes at one sink, each by one call.

    `sink` is where this line delivers: what it cannot deliver there goes on along the task's chain.
    `backoff_s` is the wait after so many attempts when the sink names none. `pause` is asked to
    pause a task, by its id, for a reason. `waits` says where the wait of a push went, for the
    push to carry: with its answer's time (Unix ms, 0 for now), its next attempt, and after how many
    seconds that is.
    """

    def __init__(
        self,
        sink: str,
        flusher: Flusher,
        republisher: Republisher,
        counts: Counts,
        backoff_s: Callable[[int], float],
        pause: Callable[[str, str], None],
        waits: Callable[[Job, int, int, float], bytes | None] = lambda *_: None,
    ) -> None:
        self.sink = sink
        self._flusher = flusher
        self._republisher = republisher
        self._counts = counts
        self._backoff_s = backoff_s
        self._pause = pause
        self._waits = waits

    def settle(self, job: Job, outcome: Outcome, at_ms: int = 0) -> None:
        """Settle a push by its outcome, heard of at `at_ms`: now unless that is given."""
        kind = outcome.kind
        if outcome.goes_to:
            return self._pass_on(job, outcome, at_ms)
        if outcome.pause_task:
            self._pause(job.push.task_id, outcome.reason)
        if kind is Kind.RETRY:
            return self._retry(job, outcome, at_ms)
        self._counts.count_waits([job], at_ms or now_ms())
        why = self._counts.why(outcome)
        if kind is Kind.DEAD:
            self._counts.ended(job.lane.level, kind)
            at = job.push.attempt, self.sink
            return self._bury(job, outcome.reason, job.body, why, *at, at_ms)
        return self.end(job, kind, outcome.reason, at_ms, why)

    def delivered(self, jobs: Sequence[Job], at_ms: int) -> None:
        """Settle many that are delivered, at a fraction of what each would cost alone."""
        self._counts.delivered(jobs)
        self._counts.count_waits(jobs, at_ms)
        self._flusher.count_all(jobs)
        kind = Kind.DELIVERED
        self._flusher.add_new([Ending(job, kind, kind, "", at_ms) for job in jobs])

    def end(self, job: Job, kind: Kind, reason: str, at_ms: int = 0, why: str = "") -> None:
        """End a push as finished, and count it under `why`; a reason of ours is its own class."""
        self._counts.ended(job.lane.level, kind)
        self._flusher.count(job.lane)
        self._flusher.add_new([Ending(job, kind, kind, reason, at_ms, why or reason)])

    def end_as_before(self, job: Job, kind: Kind, reason: str) -> None:
        """End a push that ended so in a process lost before it told: no metric counts it."""
        self._flusher.count(job.lane)
        self._flusher.add_new([Ending(job, kind, kind, reason)])

    def drop_copy(self, job: Job) -> None:
        """Ack a copy of a push that was finished before it came."""
        self._flusher.count(job.lane)
        self._flusher.add([Ending(job)])

    def ack(self, message: Message) -> None:
        """Ack a copy of a message of which every push was settled before it came."""
        self._flusher.ack(message)

    def passed_on(self, job: Job, outcome: Outcome) -> Outcome:
        """Return the outcome, or that a push which is dead here goes on to its next sink, if any.

        What may have arrived stays dead: the next sink would send it a second time. An answer about
        the push itself says that it has not.
        """
        if outcome.kind is not Kind.DEAD or outcome.arrival is Arrival.UNKNOWN:
            return outcome
        goes_to = job.task.next_sink(self.sink, job.push)
        if not goes_to:
            return outcome
        is_sure = outcome.scope in (Scope.PUSH, Scope.RECIPIENT)
        arrival = Arrival.REFUSED if is_sure else outcome.arrival
        return replace(outcome, kind=Kind.RETRY, goes_to=goes_to, arrival=arrival)

    def move(self, job: Job, target: str) -> None:
        """Publish a push on another lane of its task."""
        self._go_on(Ending(job, target=target, body=self._again(job)))

    def put_off(self, job: Job, delay_s: float, wait: Wait | None = None) -> None:
        """Let a push wait on its later lane. `wait` says what for, if people should know.

        It is not taken before `delay_s`. It goes as it came, unless it has waited for something.
        """
        body = self._again(job, 0, delay_s) if job.aside else job.body
        self._put_off(Ending(job, body=body, delay_s=delay_s, wait=wait))

    def later(self, job: Job, wait_s: float) -> None:
        """Offer a push that was not sent again as it is, after `wait_s`."""
        delay_s = min(wait_s, _WAIT_LONGEST_S)
        body = self._again(job, 0, delay_s)
        self._put_off(Ending(job, body=body, delay_s=delay_s, wait=_retry_in(delay_s)))

    def bury_malformed(self, job: Job) -> None:
        """Bury a push of a task that cannot be read."""
        self._counts.unreadable(job.lane.level)
        raw = job.message.raw(job.place)
        self._bury(job, _unreadable(job), raw, _MALFORMED, 0, "")

    def bury_unknown(self, job: Job) -> None:
        """Bury a push that cannot be read and that no task counts."""
        raw = job.message.raw(job.place)
        dead = DeadPush("", 0, 0, _unreadable(job)[:_REASON_LONGEST], now_ms(), raw)
        self._go_on(Ending(job, target=DEAD_LANE, body=encode_dead(dead)))

    def _retry(self, job: Job, outcome: Outcome, at_ms: int) -> None:
        if outcome.pause_task:
            return self.later(job, _PAUSED_AGAIN_S)
        push = job.push
        if push.attempt >= job.task.max_attempts or len(job.body) > LARGEST - 32:  # it grows
            attempts = "1 attempt" if push.attempt == 1 else f"{push.attempt} attempts"
            reason = f"gave up after {attempts}: {outcome.reason}"
            may_repeat = job.task.delivery is DeliveryMode.AT_LEAST_ONCE
            arrival = Arrival.FAILED if may_repeat else outcome.arrival
            dead = Outcome.dead(reason, arrival=arrival)
            return self.settle(job, self.passed_on(job, dead), at_ms)
        self._counts.retried(job.lane.level, outcome)
        wait_s = self._backoff_s(push.attempt) if outcome.after_s is None else outcome.after_s
        wait_s = min(max(wait_s, 0.0), _WAIT_LONGEST_S)
        due_at_ms = now_ms() + int(wait_s * 1000)
        attempt = max(push.attempt, 0) + 1
        body = self._again(job, at_ms, wait_s, attempt=attempt, due_at_ms=due_at_ms)
        ending = Ending(job, None, Kind.RETRY, outcome.reason, at_ms, body=body, delay_s=wait_s)
        ending.wait = _retry_in(wait_s)
        return self._put_off(ending)

    def _pass_on(self, job: Job, outcome: Outcome, at_ms: int) -> None:
        """Let a push begin anew at the next sink of its chain."""
        self._counts.retried(job.lane.level, outcome)
        body = self._again(job, at_ms, attempt=1, due_at_ms=0, strikes=0)
        reason = f"goes on to {outcome.goes_to}: {outcome.reason}"
        ending = Ending(job, None, Kind.RETRY, reason, at_ms, body=body)
        ending.target = lane_at(job.push.task_id, outcome.goes_to)
        ending.opens_for, ending.opens_at = job.push.task_id, outcome.goes_to
        self._go_on(ending)

    def _again(self, job: Job, at_ms: int = 0, delay_s: float = 0.0, **changes: Any) -> bytes:
        """Return a push as it is written again, with where its wait went so far."""
        again = replace(job.push, **changes)
        waits = self._waits(job, at_ms, again.attempt, delay_s)
        body = encode(replace(again, waits=waits), job.body)
        return body if len(body) <= LARGEST else job.body  # whose writer went over the limit

    def _bury(
        self, job: Job, reason: str, body: bytes, why: str, attempt: int, sink: str, at_ms: int = 0
    ) -> None:
        """Put a dead push on a dead-letter lane, and count it under `why`.

        A task with a lane of its own has a dead-letter lane of its own, so that none has to look
        through the dead of others. It costs no reader, as nobody reads it until somebody asks.
        """
        push = job.push
        told = reason[:_REASON_LONGEST]
        dead = DeadPush(push.task_id, push.seq, attempt, told, now_ms(), body, sink)
        target = DEAD_LANE if is_pool(job.lane.name) else dead_lane(push.task_id)
        ending = Ending(job, Kind.DEAD, Kind.DEAD, told, at_ms, why)
        ending.target, ending.body = target, encode_dead(dead)
        self._go_on(ending)

    def _put_off(self, ending: Ending) -> None:
        """Publish it on the later lane of its lane."""
        job, lane = ending.job, ending.job.lane
        lane.deferred += 1
        is_open = is_pool(lane.name) or is_chained(lane.name)  # with its lane
        ending.target = lane.later.name
        ending.opens_for = "" if is_open else job.push.task_id
        ending.delay_s = _rounded(ending.delay_s)
        self._go_on(ending)

    def _go_on(self, ending: Ending) -> None:
        is_buried = ending.kind is Kind.DEAD or ending.target == DEAD_LANE
        ending.moves = not is_buried and not is_later(ending.job.came_on)
        self._flusher.count(ending.job.lane)
        self._republisher.add(ending)


def by_promise(task: Task, outcome: Outcome) -> Outcome:
    """Return the outcome as the task's delivery mode allows it (docs/guarantees.md).

    What may have arrived is dead instead of tried again, where it must not be sent a second time.
    """
    if outcome.kind is not Kind.RETRY or task.delivery is DeliveryMode.AT_LEAST_ONCE:
        return outcome
    is_strict = task.delivery is DeliveryMode.AT_MOST_ONCE
    if is_strict and outcome.arrival is Arrival.REFUSED:
        return outcome
    if not is_strict and (
        outcome.arrival is not Arrival.UNKNOWN or task.on_unknown is OnUnknown.RESEND
    ):
        return outcome
    why = "the task is at_most_once" if is_strict else "it may have arrived"
    reason = f"{outcome.reason or 'failed'}; not tried again, since {why}"
    return replace(outcome, kind=Kind.DEAD, reason=reason, goes_to="")


def _retry_in(delay_s: float) -> Wait:
    return Wait(WaitReason.RETRY, now_ms() + round(delay_s * 1000))


def _unreadable(job: Job) -> str:
    return f"{_MALFORMED}: {job.error}"


def _rounded(delay_s: float) -> float:
    """Round a delay up to a step, so that retries travel in batches."""
    return -(-delay_s // _DELAY_STEP_S) * _DELAY_STEP_S if delay_s > 0 else 0.0
