"""The budgets that a process leases of the store's limits: a rate, an in-flight cap, a hard total.

Budgets are pure: they are told the time. `Leasing` asks the store for what all of them are about to
need, in one call for each kind, and gives back the rest:

- of a rate what is used in some 60 ms, so that what all processes have in hand together is a small
  part of it, however many they are;
- of a cap the places for what is in use, twice as many when that was too little. They are held for
  some seconds and renewed, so that those of a killed process come back;
- of a total some hundredth at most. All processes together are never allotted more than the total,
  and what one does not need goes back soon: so its last pushes are not stuck in a process that has
  none.

While the store is away what was leased goes on being spent; then pushes wait. It is never tried
without it: a limit holds in an outage too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from pushlane.backends.guard_ports import (
    Limiter,
    PlaceAsk,
    Tally,
    TokenAsk,
    TokenGrant,
    TokenReturn,
    TotalAsk,
)
from pushlane.core.errors import PushlaneError
from pushlane.core.retrying import Backoff
from pushlane.util.retrying import raise_first

BURST_S = 0.1
"""So much of a rate gathers in the store while nobody asks, and is the most that is leased."""

PACE_S = 0.03
"""So often a budget asks at most."""

KEPT_S = 0.3
"""What was not used for so long is given back."""

ROUNDING = 1e-9
_FIRST_PART = 0.2
_LONGEST_WAIT_S = 5.0


AskT = TypeVar("AskT")
AnswerT = TypeVar("AnswerT")


class Budget(ABC, Generic[AskT, AnswerT]):
    """What pushes need room in, of which a part is leased of the store: asked for and answered."""

    _missing = 0.0
    _next_ask_s = 0.0

    @abstractmethod
    def set_limit(self, limit: Any) -> None:
        """Go by another limit from now on."""

    @abstractmethod
    def has_room(self, cost: float, now_s: float) -> bool:
        """Tell whether a push of this cost may go now."""

    @abstractmethod
    def room(self, cost: float) -> float:
        """Return how many pushes of this cost have room."""

    @abstractmethod
    def take(self, cost: float) -> None:
        """Charge a push."""

    @abstractmethod
    def give_back(self, cost: float) -> None:
        """Take back what a push was charged: it did not go, or has landed."""

    @abstractmethod
    def ask(self, now_s: float) -> AskT | None:
        """Return what to ask for now, None when all is as it should be."""

    @abstractmethod
    def granted(self, answer: AnswerT, now_s: float) -> None:
        """Hear the store's answer to what was asked for."""

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """Tell whether it needs nothing of the store until it is missed again."""

    def miss(self, cost: float) -> None:
        """Note that a push waits for it."""
        self._missing = max(self._missing, self._amount(cost))

    def unmiss(self) -> None:
        """Forget who waited: those that still do say so again."""
        self._missing = 0.0

    def unused(self, now_s: float, *, at_once: bool = False) -> TokenReturn | None:
        """Return what is to be given back now beside what is asked for, and have it no longer."""
        return None

    def closing(self) -> AskT | None:
        """Return the ask that gives back all that is not spent or in use."""
        return None

    def _amount(self, cost: float) -> float:
        return cost


LeasedBudget = Budget[Any, Any]


class RateBudget(Budget[TokenAsk, TokenGrant]):
    """Tokens to spend at once. One push more than a burst goes from a full one, into debt."""

    def __init__(self, subject: str, rate_per_s: float) -> None:
        self.subject = subject
        self._rate_per_s = rate_per_s
        self.tokens = 0.0
        self._cost = 1.0
        self._used = 0.0
        self._pace = 0.0
        self._granted_at_s = 0.0

    @property
    def _burst(self) -> float:
        return self._rate_per_s * BURST_S

    def set_limit(self, limit: float) -> None:
        """Ask by another rate from now on; of what is in hand no more than its burst is kept."""
        if limit != self._rate_per_s:
            self._rate_per_s = limit
            self.tokens = min(self.tokens, self._burst)
            self._next_ask_s = 0.0

    def has_room(self, cost: float, now_s: float) -> bool:
        return self.tokens >= cost - ROUNDING

    def room(self, cost: float) -> float:
        return self.tokens / cost

    def take(self, cost: float) -> None:
        self.tokens -= cost
        self._used += cost
        self._cost = cost

    def give_back(self, cost: float) -> None:
        self.tokens += cost
        self._used = max(0.0, self._used - cost)

    def ask(self, now_s: float) -> TokenAsk | None:
        if now_s < self._next_ask_s:
            return None
        self._pace = max(self._used, self._pace / 2)
        self._used = 0.0
        ahead = self._pace if self._pace >= ROUNDING else 0.0
        need = max(self._missing, min(self._cost, ahead))
        if self.tokens >= max(ahead, self._missing) - ROUNDING:
            self._missing = 0.0
            return None
        first = self._burst * _FIRST_PART if self._missing else 0.0
        wanted = max(need, min(self._burst, max(2 * ahead, first))) - self.tokens
        least = max(ROUNDING, need - self.tokens)
        self._next_ask_s = now_s + PACE_S * random.uniform(0.7, 1.3)  # else one is always first
        return TokenAsk(self.subject, self._rate_per_s, self._burst, max(wanted, least), least)

    def granted(self, answer: TokenGrant, now_s: float) -> None:
        """Take what the store granted, or wait as long as it says that it takes."""
        self.tokens += answer.tokens
        if answer.tokens:
            self._granted_at_s = now_s
            self._missing = 0.0
        else:
            wait_s = min(answer.wait_s, _LONGEST_WAIT_S) * random.uniform(1.0, 1.1)
            self._next_ask_s = now_s + max(PACE_S, wait_s)

    def unused(self, now_s: float, *, at_once: bool = False) -> TokenReturn | None:
        is_kept = self._missing or now_s < self._granted_at_s + KEPT_S
        if self.tokens <= ROUNDING or (is_kept and not at_once):
            return None
        tokens, self.tokens = self.tokens, 0.0
        return TokenReturn(self.subject, self._burst, tokens)

    @property
    def is_idle(self) -> bool:
        return not self._missing and self.tokens <= ROUNDING and not self._used


PLACES_TTL_S = 10.0

_RENEW_S = PLACES_TTL_S / 4
_AGAIN_S = 0.05


class PlaceBudget(Budget[PlaceAsk, int]):
    """Places to fill at once, as long as the store has been heard of lately.

    While an answer is awaited no more may be in use than was said, since the store may take away
    what is not. As long as the store may think that it waits, places are kept for it there: so it
    is not idle until the store has heard that it wants none.
    """

    def __init__(self, subject: str, cap: int) -> None:
        self.subject = subject
        self._cap = cap
        self.in_use = 0
        self._held = 0
        self._asked = 0
        self._known = 0
        self._may_fill = 0
        self._valid_until_s = 0.0
        self._asked_at_s = 0.0
        self._peaks = (0, 0)
        self._turned_at_s = 0.0

    def set_limit(self, limit: int) -> None:
        if limit != self._cap:
            self._cap = limit
            self._may_fill = min(self._may_fill, limit)
            self._next_ask_s = self._asked_at_s = 0.0

    def has_room(self, cost: float, now_s: float) -> bool:
        return self.in_use < self._may_fill and now_s < self._valid_until_s

    def room(self, cost: float) -> float:
        return self._may_fill - self.in_use

    def take(self, cost: float) -> None:
        self.in_use += 1
        before, now = self._peaks
        self._peaks = before, max(now, self.in_use)

    def give_back(self, cost: float) -> None:
        self.in_use -= 1

    def ask(self, now_s: float) -> PlaceAsk | None:
        if now_s < self._next_ask_s:
            return None
        peak = self._peak(now_s)
        wanted = min(self._cap, peak + max(1, peak)) if self._missing else peak
        is_due = now_s >= self._asked_at_s + _RENEW_S and (self._held or self.in_use)
        is_unused = wanted < max(self._held, self._known) and now_s >= self._asked_at_s + KEPT_S
        if not (self._missing or is_due or is_unused):
            return None
        self._asked_at_s = now_s
        self._asked = wanted
        self._known = max(self._known, wanted)
        self._next_ask_s = now_s + _AGAIN_S * random.uniform(0.6, 1.0)
        said = self.in_use if self._missing else wanted
        self._may_fill = min(self._may_fill, max(said, self.in_use))
        return PlaceAsk(self.subject, self._cap, wanted, max(said, self.in_use))

    def granted(self, answer: int, now_s: float) -> None:
        """Fill so many from now on; counted from when they were asked for."""
        self._held = self._may_fill = min(answer, self._cap)
        self._known = self._asked
        self._valid_until_s = self._asked_at_s + PLACES_TTL_S
        if self.in_use < answer:
            self._missing = 0.0

    def closing(self) -> PlaceAsk:
        self._may_fill = 0
        return PlaceAsk(self.subject, self._cap, 0, self.in_use)

    @property
    def is_idle(self) -> bool:
        return not (self._missing or self._held or self._known or self.in_use)

    def _peak(self, now_s: float) -> int:
        """Return how many were in use at once lately."""
        if now_s >= self._turned_at_s + KEPT_S:
            self._turned_at_s = now_s
            self._peaks = self._peaks[1], self.in_use
        return max(*self._peaks, self.in_use)


MOST_PART = 0.01
"""So much of a total is leased at once at most, but always the cost of one push."""

_TOTAL_AGAIN_S = 1.0

_LIFE_S = 24 * 3600.0
"""The store counts who was not heard of for two days as gone, with all it spent: so after half of
that it is another one that asks.
"""


class TotalBudget(Budget[TotalAsk, float]):
    """A part of a total. `counts_pushes`: each push is one, whatever it costs."""

    def __init__(self, tally: Tally, limit: float, *, counts_pushes: bool) -> None:
        self.tally = tally
        self._holder = secrets.token_hex(6)
        self._limit = limit
        self._counts_pushes = counts_pushes
        self._used = 0.0
        self._allotted = 0.0
        self._may_use = 0.0
        self._gives_back = False
        self._since_ask = 0.0
        self._pace = 0.0
        self._touched_at_s = 0.0
        self._heard_at_s: float | None = None

    def set_limit(self, limit: float) -> None:
        if limit != self._limit:
            self._limit = limit
            self._next_ask_s = 0.0

    def has_room(self, cost: float, now_s: float) -> bool:
        return self._used + self._amount(cost) <= self._may_use + ROUNDING

    def room(self, cost: float) -> float:
        return (self._may_use - self._used) / self._amount(cost)

    def take(self, cost: float) -> None:
        self._used += self._amount(cost)
        self._since_ask += self._amount(cost)

    def give_back(self, cost: float) -> None:
        self._used -= self._amount(cost)
        self._since_ask = max(0.0, self._since_ask - self._amount(cost))

    def ask(self, now_s: float) -> TotalAsk | None:
        if self._since_ask:
            self._touched_at_s = now_s
        if now_s < self._next_ask_s:
            return None
        if self._heard_at_s is None:
            self._heard_at_s = now_s
        elif now_s >= self._heard_at_s + _LIFE_S:
            self._begin_anew(now_s)
        self._pace = max(self._since_ask, self._pace / 2)
        self._since_ask = 0.0
        left = self._may_use - self._used
        is_over = left > ROUNDING and now_s >= self._touched_at_s + KEPT_S
        if self._gives_back or (is_over and not self._missing):
            return self._asking(self._used, now_s)
        ahead = self._pace if self._pace >= ROUNDING else 0.0
        if left >= max(ahead, self._missing) - ROUNDING:
            return None
        more = max(self._missing, min(2 * ahead, self._limit * MOST_PART))
        return self._asking(self._used + more, now_s) if more > left + ROUNDING else None

    def granted(self, answer: float, now_s: float) -> None:
        """Spend up to so much in all; what is too little for a push goes back at once."""
        self._heard_at_s = now_s
        self._allotted = self._may_use = answer
        left = answer - self._used
        if self._missing and left < self._missing - ROUNDING:
            was_given_back, self._gives_back = self._gives_back, left > ROUNDING
            self._next_ask_s = now_s + _TOTAL_AGAIN_S * random.uniform(0.5, 1.0)
            if self._gives_back and not was_given_back:
                self._next_ask_s = now_s
        else:
            self._gives_back = False
            self._missing = 0.0
            self._touched_at_s = now_s

    def closing(self) -> TotalAsk:
        return self._asking(self._used, 0.0)

    @property
    def is_idle(self) -> bool:
        return not self._missing and self._allotted <= self._used + ROUNDING

    def _amount(self, cost: float) -> float:
        return 1.0 if self._counts_pushes else cost

    def _begin_anew(self, now_s: float) -> None:
        """Be another holder: what was allotted to the one before stays spent in the store."""
        self._holder = secrets.token_hex(6)
        self._heard_at_s = now_s
        self._used = self._allotted = self._may_use = 0.0
        self._gives_back = False

    def _asking(self, wanted: float, now_s: float) -> TotalAsk:
        """While the answer is awaited, no more may be used than was asked for."""
        self._next_ask_s = now_s + PACE_S
        self._may_use = min(self._may_use, wanted)
        return TotalAsk(self.tally, self._limit, self._holder, self._used, wanted)


log = logging.getLogger("pushlane.budgets")

_EACH_S = 2e-5  # a look at one budget; so that thousands take a small part of the time

_Lease = Callable[[Sequence[Any]], Awaitable[Sequence[Any]]]


class Leasing:
    """Keeps in touch with the store for all budgets that are in use or missed.

    `granted` is called after each round that brought something; `is_away` tells that the last one
    failed.
    """

    def __init__(
        self, limiter: Limiter, clock_s: Callable[[], float], granted: Callable[[], None]
    ) -> None:
        holder = secrets.token_hex(6)
        self._leases: Mapping[type[LeasedBudget], _Lease] = {
            RateBudget: lambda asks: limiter.lease_tokens(asks),
            PlaceBudget: lambda asks: limiter.hold_places(asks, holder, PLACES_TTL_S),
            TotalBudget: lambda asks: limiter.lease_totals(asks),
        }
        self._limiter = limiter
        self._clock_s = clock_s
        self._granted = granted
        self._busy: dict[LeasedBudget, None] = {}
        self._due = asyncio.Event()
        self._backoff = Backoff(log, "the limiter")
        self._tells_again = False
        self.is_away = False

    def watch(self, budgets: Iterable[LeasedBudget]) -> None:
        """Look after these from now on, until they are idle."""
        for one in budgets:
            if one not in self._busy:
                self._busy[one] = None
                self._due.set()

    def tell_again(self, budgets: Iterable[LeasedBudget]) -> None:
        """Call `granted` after the next look at these, too, whatever it brings."""
        self._tells_again = True
        self.watch(budgets)

    def look(self) -> None:
        """Look at once at what is needed."""
        self._due.set()

    async def run(self) -> None:
        while True:
            await self._wait()
            try:
                await self.round()
            except PushlaneError as error:
                self.is_away = True
                await self._backoff.wait(error)
            else:
                self.is_away = False
                self._backoff.reset()

    async def round(self) -> None:
        """Ask for all that is needed now."""
        now_s = self._clock_s()
        busy = list(self._busy)
        had = await asyncio.gather(
            *(self._lease(kind, busy, now_s) for kind in self._leases),
            self._give_back(busy, now_s),
            return_exceptions=True,
        )
        for one in busy:
            if one.is_idle:
                self._busy.pop(one, None)
        tells_again, self._tells_again = self._tells_again, False
        if tells_again or True in had:
            self._granted()
        for result in had:
            if isinstance(result, BaseException):
                raise result

    async def close(self) -> None:
        """Give back all that is not spent or in use; one that fails keeps no other from it."""
        busy, now_s = list(self._busy), self._clock_s()
        self._busy.clear()
        calls: list[Awaitable[object]] = []
        for kind, lease in self._leases.items():
            closing = [one.closing() for one in busy if isinstance(one, kind)]
            if asks := [ask for ask in closing if ask]:
                calls.append(lease(asks))
        calls.append(self._give_back(busy, now_s, at_once=True))
        raise_first(await asyncio.gather(*calls, return_exceptions=True))

    async def _wait(self) -> None:
        """Wait until something is missed, or for the next look at what is in use."""
        if self._busy:
            with contextlib.suppress(TimeoutError):
                pause_s = max(PACE_S, len(self._busy) * _EACH_S)
                async with asyncio.timeout(pause_s):
                    await self._due.wait()
        else:
            await self._due.wait()
        self._due.clear()

    async def _lease(
        self, kind: type[LeasedBudget], busy: list[LeasedBudget], now_s: float
    ) -> bool:
        """Ask for what budgets of a kind need, and tell them the answers; return if any."""
        asks = {
            one: ask
            for one in busy
            if isinstance(one, kind) and (ask := one.ask(now_s)) is not None
        }
        if asks:
            answers = await self._leases[kind](list(asks.values()))
            for budget, answer in zip(asks, answers, strict=True):
                budget.granted(answer, now_s)
        return bool(asks)

    async def _give_back(
        self, busy: list[LeasedBudget], now_s: float, *, at_once: bool = False
    ) -> None:
        if returns := [one for budget in busy if (one := budget.unused(now_s, at_once=at_once))]:
            await self._limiter.return_tokens(returns)
