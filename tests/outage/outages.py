"""A dispatcher of many slots in front of a made-up sink, on a clock of its own: for the breaker."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter, deque
from collections.abc import Callable

from msgspec.structs import replace

from pushlane.core.push import DELIVERED, Kind, Outcome
from pushlane.dispatcher.breaker import Breaker
from pushlane.dispatcher.failures import Flight

BUSY = Outcome.throttled("HTTP 503")
BROKEN = Outcome.retry("HTTP 500")
NOT_FOUND = Outcome.dead("HTTP 404", scope=None)
GONE = Outcome.dead("HTTP 410")
PATIENCE_S = 86_400.0
AT_HAND = 16
MAX_ATTEMPTS = 5

Answers = Callable[[float], Outcome]
"""What the sink answers to a push that goes at this time."""


class Dispatcher:
    """Fills its slots from an endless backlog, as far as its breaker lets it (or without one)."""

    def __init__(
        self,
        answers: Answers,
        *,
        slots: int = 50,
        latency_s: float = 0.05,
        seed: int = 1,
        guarded: bool = True,
    ) -> None:
        self.breaker = Breaker(slots, PATIENCE_S, chance=random.Random(seed).random)
        self.now_s = 0.0
        self.went_s: list[float] = []
        self.probed_s: list[float] = []
        self.delivered_s: list[float] = []
        self.ended: Counter[Kind] = Counter()
        self.phases: list[str] = []
        self._answers = answers
        self._slots = slots
        self._latency_s = latency_s
        self._jitter = random.Random(seed + 1_000).random
        self._guarded = guarded
        self._flying: list[tuple[float, int, int, Flight, Outcome]] = []
        self._numbers = itertools.count(1)
        self._back: list[tuple[float, int, Flight]] = []
        self._ready: deque[Flight] = deque()
        self._attempts: Counter[str] = Counter()

    def run(self, until_s: float) -> Dispatcher:
        while self.now_s <= until_s:
            self._fill()
            self._note()
            self.now_s = self._next_s()
            self._land()
        self.now_s = until_s
        return self

    def _fill(self) -> None:
        free = self._slots - len(self._flying)
        while self._back and self._back[0][0] <= self.now_s:
            self._ready.append(heapq.heappop(self._back)[2])
        room = self.breaker.room(self.now_s, free) if self._guarded else free
        for _ in range(room):
            leave = self.breaker.admit(self.now_s, 1)
            flight = self._next()
            lands_s = self.now_s + self._latency_s * (0.5 + self._jitter())
            outcome = self._answers(self.now_s)
            number = next(self._numbers)
            heapq.heappush(self._flying, (lands_s, number, leave, flight, outcome))
            self.went_s.append(self.now_s)
            if self.breaker.rests:
                self.probed_s.append(self.now_s)

    def _next(self) -> Flight:
        while len(self._ready) < AT_HAND:
            number = next(self._numbers)
            self._ready.append(Flight(f"t-{number}", "t", "a"))
        if self.breaker.is_closed:
            return self._ready.popleft()
        at = self.breaker.choose(list(itertools.islice(self._ready, AT_HAND)))
        flight = self._ready[at]
        del self._ready[at]
        return flight

    def _next_s(self) -> float:
        times = [heap[0][0] for heap in (self._flying, self._back) if heap]
        wake_at_s = self.breaker.wake_at_s() if self._guarded else None
        if wake_at_s is not None and wake_at_s > self.now_s:
            times.append(wake_at_s)
        return min(times)

    def _land(self) -> None:
        while self._flying and self._flying[0][0] <= self.now_s:
            _, number, leave, flight, outcome = heapq.heappop(self._flying)
            wait_s = self.breaker.landed(self.now_s, leave, flight, outcome)
            if wait_s is not None:
                heapq.heappush(self._back, (self.now_s + wait_s, number, flight))
            else:
                self._settle(number, flight, outcome)

    def _settle(self, number: int, flight: Flight, outcome: Outcome) -> None:
        if outcome is DELIVERED:
            self.delivered_s.append(self.now_s)
        kind = outcome.kind
        self._attempts[flight.push_id] += 1
        if kind is Kind.RETRY and self._attempts[flight.push_id] >= MAX_ATTEMPTS:
            kind = Kind.DEAD
        elif kind is Kind.RETRY:
            charged = replace(flight, is_charged=True)
            heapq.heappush(self._back, (self.now_s + 1.0, number, charged))
        self.ended[kind] += 1

    def _note(self) -> None:
        phase = self.breaker.view().state.value
        if not self.phases or self.phases[-1] != phase:
            self.phases.append(phase)


def within(times_s: list[float], start_s: float, end_s: float) -> int:
    return sum(start_s <= at_s < end_s for at_s in times_s)


def down(start_s: float, end_s: float, failure: Outcome = BUSY) -> Answers:
    """A sink that delivers but answers so in between."""
    return lambda now_s: failure if start_s <= now_s < end_s else DELIVERED


def at_random(share: float, failure: Outcome = BUSY, seed: int = 7) -> Answers:
    """A sink that fails for this share of the pushes."""
    dice = random.Random(seed).random
    return lambda _: failure if dice() < share else DELIVERED
