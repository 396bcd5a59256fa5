"""What a dispatcher does about a sink that fails: how many pushes go, which, and what waits.

The breaker decides (`dispatcher.breaker`); this tells it what happens. A push that the sink could
not take loses nothing: it stays unacked in memory and goes back to its lane. In an outage that is
at once, since nothing leaves the lane then. One that is refused while others get through waits for
a while, and for a long while on its later lane. So nothing is written because of an outage.

A push that failed as a probe stands aside, so that those behind it on its lane are tried too: it
may be the only reason why the sink looks down. It comes back when nothing else is there to try, and
once the sink goes on: one for each delivery, so that what failed never fills all slots.

Whether the sink's target has ever delivered is kept in the store (`TargetMemory`).
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass

from pushlane.core.errors import PushlaneError, UnknownFormat
from pushlane.core.lane import Job, Why
from pushlane.core.push import DELIVERED, Outcome
from pushlane.core.retrying import Backoff
from pushlane.core.settle import Settler
from pushlane.core.task import DeliveryMode, SteadyTime
from pushlane.dispatcher.breaker import Breaker, Restraint, View, restraint
from pushlane.dispatcher.failures import Flight, TargetStanding, TargetWords
from pushlane.dispatcher.stats import Stats
from pushlane.model.documents import DocumentStore
from pushlane.model.presence import SinkTarget, continued
from pushlane.model.targets import note_delivered, target_history
from pushlane.util.texts import Once

log = logging.getLogger("pushlane.outage")

MOST_WAITING = 10_000
MOST_ASIDE = 1_000
LONGEST_IN_MEMORY_S = 30.0
_LOOK_EVERY_S = 1.0
_SOONEST_S = 0.001
_ASIDE_EVERY_S = 1.0
_SAY_EVERY_S = 60.0
_TELL_EVERY_S = 1.0
GIVE_UP_AFTER_S = 30.0
"""With `--drain`: for how long a sink that has never delivered may rest until it is given up."""


@dataclass(eq=False, repr=False)
class Outage:
    """A dispatcher's breaker, with the pushes that wait because of it.

    With `drain` it says now and then that the end of the dispatcher waits for the sink.
    `holds_back` tells whether the last round had room for less than the free slots. `on_change` is
    called when the sink begins to fail, rests or goes on, at most once a second. `clock_s` is
    monotonic.
    """

    breaker: Breaker
    settler: Settler
    stats: Stats
    _: KW_ONLY
    drain: bool = False
    clock_s: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._waiting: list[tuple[float, int, Job]] = []
        self._order = itertools.count()
        self._aside: deque[Job] = deque()
        self._returned_at_s = 0.0
        self._looked_at_s = self.clock_s()
        self._is_short = False
        self.holds_back = False
        self._rested_since_s: float | None = None
        self._said_at_s = 0.0
        self.on_change: Callable[[], None] = lambda: None
        self._told = (True, False)
        self._told_at_s = -math.inf

    @property
    def rests(self) -> bool:
        return self.breaker.rests

    @property
    def has_delivered(self) -> bool:
        """Tell whether its target is known to have delivered, here or elsewhere."""
        return self.breaker.standing is TargetStanding.PROVEN

    @property
    def is_given_up(self) -> bool:
        """Tell whether a dispatcher that drains should wait for it no longer."""
        since_s = self._rested_since_s
        if not self.drain or since_s is None or not self.breaker.view().is_unproven:
            return False
        return self.clock_s() >= since_s + GIVE_UP_AFTER_S

    @property
    def is_choosy(self) -> bool:
        """Tell whether so few pushes may go that it matters which."""
        return self.breaker.is_choosy

    @property
    def waiting(self) -> int:
        """Return how many pushes wait in memory.

        They were refused while others got through, or failed as probes.
        """
        return len(self._waiting) + len(self._aside)

    def view(self) -> View:
        """Return how the breaker stands, in times of `clock_s`."""
        return self.breaker.view()

    def restraint(self, now_ms: int) -> Restraint | None:
        """Return why the sink gets fewer pushes than there are, if it does."""
        return restraint(self.view(), self.clock_s(), now_ms)

    def room(self, free: int) -> int:
        """Return how many free slots may be filled now; pushes whose wait is over go back first."""
        now_s = self.clock_s()
        self._end_waits(now_s)
        if self._aside and not self.rests and now_s >= self._returned_at_s + _ASIDE_EVERY_S:
            self._return_aside(now_s, 1)
        room = self.breaker.room(now_s, free)
        self._is_short = room == 0 < free
        self.holds_back = room < free
        self._note(now_s)
        return room

    def wake_in_s(self) -> float | None:
        """Return after how long there may be room, or a wait over, though nothing has landed."""
        now_s = self.clock_s()
        times_s = [] if not self.waiting else [self._looked_at_s + _LOOK_EVERY_S]
        if self._waiting:
            times_s.append(self._waiting[0][0])
        if self._aside and not self.rests:
            times_s.append(self._returned_at_s + _ASIDE_EVERY_S)
        if self._is_short and (wake_at_s := self.breaker.wake_at_s()) is not None:
            times_s.append(wake_at_s)
        return max(_SOONEST_S, min(times_s) - now_s) if times_s else None

    def try_again(self) -> None:
        """Try a sink that rests at once."""
        self.breaker.try_again(self.clock_s())

    def learn(self, known: TargetStanding, words: TargetWords, *, is_other: bool) -> None:
        """Hear what is known of the target, which `is_other` than the one before."""
        self.breaker.learn(self.clock_s(), known, words, is_other=is_other)

    def choose(self, jobs: Sequence[Job]) -> Job:
        """Choose the one to try; the others go back to their lanes."""
        chosen = jobs[self.breaker.choose([flight_of(job) for job in jobs])]
        self.put_back([job for job in jobs if job is not chosen])
        return chosen

    def recall(self) -> bool:
        """Put back the probe that failed first, as nothing else is there to try."""
        return self._return_aside(self.clock_s(), 1) > 0

    def permit(self, jobs: Sequence[Job]) -> None:
        """Give pushes that are about to go their permit."""
        permit = self.breaker.admit(self.clock_s(), len(jobs))
        self.stats.probes += self.breaker.rests
        for job in jobs:
            job.permit = permit

    def is_valid(self, permit: int) -> bool:
        """Tell whether pushes with this permit may go: the sink was not found down meanwhile."""
        return self.breaker.is_valid(permit)

    def give_back(self, permit: int, count: int) -> None:
        """Count off pushes that have a permit and did not go."""
        if count:
            self.breaker.give_back(permit, count)

    def put_back(self, jobs: Sequence[Job]) -> None:
        """Make pushes that did not go the next of their lanes."""
        for job in jobs:
            job.lane.give_back(job)

    def landed(self, jobs: Sequence[Job], outcomes: Sequence[Outcome]) -> list[float | None]:
        """Hear what the sink answered to pushes with one permit.

        Returns for each how long it is to wait, None if it is to be settled; nothing if all are.
        """
        now_s = self.clock_s()
        breaker = self.breaker
        if all(outcome is DELIVERED for outcome in outcomes) and breaker.landed_well(
            now_s, jobs[0].permit, len(jobs)
        ):
            self._return_aside(now_s, len(jobs))
            return []
        waits_s = [
            breaker.landed(now_s, job.permit, flight_of(job), outcome)
            for job, outcome in zip(jobs, outcomes, strict=True)
        ]
        self._return_aside(now_s, sum(outcome is DELIVERED for outcome in outcomes))
        self._note(now_s)
        return waits_s

    def keep(self, job: Job, wait_s: float, outcome: Outcome) -> None:
        """Keep a push that the sink did not take: it goes again after `wait_s`, at no attempt."""
        self.stats.spared += 1
        job.aside = (*job.aside, ("tried", (job.dispatched_at_ms - SteadyTime.tie_ms) / 1000))
        asked_s = outcome.after_s or 0.0
        if self.rests and self.is_valid(job.permit):
            job.lane.park(job, Why.REFUSED)
            self._aside.append(job)
            if len(self._aside) > MOST_ASIDE:
                self.recall()
        elif wait_s <= 0:
            self.put_back([job])
        elif asked_s > LONGEST_IN_MEMORY_S or len(self._waiting) >= MOST_WAITING:
            self.settler.later(job, max(wait_s, asked_s))
        else:
            job.lane.park(job, Why.REFUSED)
            heapq.heappush(self._waiting, (self.clock_s() + wait_s, next(self._order), job))

    def _return_aside(self, now_s: float, count: int) -> int:
        """Put back so many pushes that failed as probes; return how many there were."""
        count = min(count, len(self._aside))
        for _ in range(count):
            job = self._aside.popleft()
            job.lane.release(job)
        if count:
            self._returned_at_s = now_s
        return count

    def _end_waits(self, now_s: float) -> None:
        if self.waiting and now_s >= self._looked_at_s + _LOOK_EVERY_S:
            self._looked_at_s = now_s
            self._let_go_of_ended(now_s)
        while self._waiting and self._waiting[0][0] <= now_s:
            job = heapq.heappop(self._waiting)[2]
            job.lane.release(job)

    def _let_go_of_ended(self, now_s: float) -> None:
        """Put back what waits of lanes whose task is over, so that they can be closed."""
        if any(job.lane.retired for _, _, job in self._waiting):
            waiting = [
                (now_s if job.lane.retired else due_s, number, job)
                for due_s, number, job in self._waiting
            ]
            heapq.heapify(waiting)
            self._waiting = waiting
        for _ in range(len(self._aside)):
            job = self._aside.popleft()
            if job.lane.retired:
                job.lane.release(job)
            else:
                self._aside.append(job)

    def _note(self, now_s: float) -> None:
        """Say when the sink rests and when it goes on."""
        stands = self.breaker.is_closed, self.breaker.rests
        if stands != self._told and now_s >= self._told_at_s + _TELL_EVERY_S:
            self._told, self._told_at_s = stands, now_s
            self.on_change()
        if self.breaker.rests:
            if self._rested_since_s is None:
                self._rested_since_s = self._said_at_s = now_s
                self._say_rests(now_s)
            elif self.drain and now_s >= self._said_at_s + _SAY_EVERY_S:
                self._said_at_s = now_s
                self._say_rests(now_s)
        elif self._rested_since_s is not None:
            rested_s = now_s - self._rested_since_s
            self._rested_since_s = None
            extra = {"action": "sink_goes_on"}
            log.info(
                "sink %s goes on after a rest of %.0f s", self.settler.sink, rested_s, extra=extra
            )

    def _say_rests(self, now_s: float) -> None:
        view = self.breaker.view()
        tried = "it is being tried"
        if view.next_try_s is not None:
            tried = f"it is tried again in {max(0.0, view.next_try_s - now_s):.1f} s"
        if self.drain and view.is_unproven:
            tried += f"; --drain waits for it for {GIVE_UP_AFTER_S:.0f} s"
        elif self.drain:
            tried += "; --drain waits until it works again; Ctrl-C stops it, and nothing is lost"
        said = continued(view.reason, tried, by="; ")
        log.warning("sink %s rests: %s", self.settler.sink, said, extra={"action": "sink_rests"})


def flight_of(job: Job) -> Flight:
    """Return what a breaker has to know of a push."""
    push, task = job.push, job.task
    return Flight(
        push.push_id,
        task.id,
        task.app,
        is_charged=push.attempt > 1,
        may_repeat=task.delivery is not DeliveryMode.AT_MOST_ONCE,
    )


_EVERY_S = 1.0
_QUESTIONS = {
    "webhook": "is the URL right?",
    "http": "is the URL right?",
    "fcm": "is the project right?",
    "apns": "are topic and environment right?",
}


@dataclass(eq=False, repr=False)
class TargetMemory:
    """Keeps in the store whether a line's target has ever delivered, and tells the line's breaker.

    It looks once a second: nothing is written for each delivery, and what the store does not take
    yet is offered again. What is known of a target is read at the start, when the sink leads
    elsewhere, and while it rests or its answers are accepted: another process may have delivered,
    or somebody may have accepted its answers. `target` returns what the sink delivers to now.
    `wake` is called when something new was learned, so that more may go.
    """

    documents: DocumentStore
    target: Callable[[], SinkTarget | None]
    outage: Outage
    clock_ms: Callable[[], int]
    wake: Callable[[], None]

    def __post_init__(self) -> None:
        self._known: SinkTarget | None = None
        self._standing = TargetStanding.UNKNOWN
        self._once = Once(log)

    async def run(self) -> None:
        backoff = Backoff(log, "what is kept of targets")
        while True:
            await backoff.until_done(self.look)
            await asyncio.sleep(_EVERY_S)

    async def look(self) -> None:
        """Read what is kept of the target where that may have changed; keep that it delivered.

        Raises:
            Unreachable: the store does not answer.
        """
        target = self.target()
        if target is None or not target.delivers:
            return
        is_other = target != self._known
        if is_other or self._may_have_changed():
            await self._learn(target, is_other=is_other)
        if self.outage.has_delivered and self._standing in (
            TargetStanding.NEW,
            TargetStanding.ACCEPTED,
        ):
            await note_delivered(self.documents, target.hash, self.clock_ms())
            self._standing = TargetStanding.PROVEN

    async def drain(self, timeout_s: float) -> None:
        """Keep what is not kept yet, as far as time allows: the next delivery would tell again."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.look()
        except (TimeoutError, PushlaneError):
            log.info("it is not kept yet whether the target delivers", extra={"action": "not_kept"})

    def _may_have_changed(self) -> bool:
        if self._standing is TargetStanding.NEW:
            return self.outage.rests
        return self._standing is TargetStanding.ACCEPTED and not self.outage.has_delivered

    async def _learn(self, target: SinkTarget, *, is_other: bool) -> None:
        self._standing = await self._read(target)
        question = _QUESTIONS.get(target.kind)
        words = TargetWords(str(target), question) if question else TargetWords(str(target))
        self.outage.learn(self._standing, words, is_other=is_other)
        self._known = target
        self.wake()

    async def _read(self, target: SinkTarget) -> TargetStanding:
        try:
            history = await target_history(self.documents, target.hash)
        except UnknownFormat as error:
            self._once.tell(target.hash, error)
            return TargetStanding.UNKNOWN
        if history.delivered_at_ms:
            return TargetStanding.PROVEN
        return TargetStanding.ACCEPTED if history.accepted_at_ms else TargetStanding.NEW
