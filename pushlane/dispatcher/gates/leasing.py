"""Asks the store for what budgets are about to need, in one call for all, and gives back the rest.

While the store is away what was leased goes on being spent; then pushes wait. It is never tried
without it: a limit holds in an outage too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable

from pushlane.core.errors import PushlaneError
from pushlane.core.retrying import Backoff, raise_first
from pushlane.dispatcher.budgets.place_budget import PLACES_TTL_S, PlaceBudget
from pushlane.dispatcher.budgets.rate_budget import PACE_S, RateBudget
from pushlane.dispatcher.budgets.total_budget import TotalBudget
from pushlane.lanes.ports import Limiter

log = logging.getLogger("pushlane.budgets")

_EACH_S = 2e-5  # a look at one budget; so that thousands take a small part of the time

LeasedBudget = RateBudget | PlaceBudget | TotalBudget


class Leasing:
    """Keeps in touch with the store for all budgets that are in use or missed.

    `granted` is called after each round that brought something. `is_away`
    tells that the last one failed.
    """

    def __init__(
        self, limiter: Limiter, clock_s: Callable[[], float], granted: Callable[[], None]
    ) -> None:
        self._limiter = limiter
        self._clock_s = clock_s
        self._granted = granted
        self._holder = secrets.token_hex(6)
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
        """Lease for ever."""
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
        rates = [one for one in busy if isinstance(one, RateBudget)]
        had = await asyncio.gather(
            self._lease_tokens(rates, now_s),
            self._hold_places([one for one in busy if isinstance(one, PlaceBudget)], now_s),
            self._lease_totals([one for one in busy if isinstance(one, TotalBudget)], now_s),
            self._return_tokens(rates, now_s),
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
        busy = list(self._busy)
        now_s = self._clock_s()
        returns = [
            one
            for budget in busy
            if isinstance(budget, RateBudget) and (one := budget.unused(now_s, at_once=True))
        ]
        places = [one.closing() for one in busy if isinstance(one, PlaceBudget)]
        totals = [one.closing() for one in busy if isinstance(one, TotalBudget)]
        self._busy.clear()
        calls: list[Awaitable[object]] = []
        if totals:
            calls.append(self._limiter.lease_totals(totals))
        if places:
            calls.append(self._limiter.hold_places(places, self._holder, PLACES_TTL_S))
        if returns:
            calls.append(self._limiter.return_tokens(returns))
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

    async def _lease_tokens(self, budgets: list[RateBudget], now_s: float) -> bool:
        pairs = [(one, ask) for one in budgets if (ask := one.ask(now_s))]
        if pairs:
            grants = await self._limiter.lease_tokens([ask for _, ask in pairs])
            for (budget, _), grant in zip(pairs, grants, strict=True):
                budget.granted(grant, now_s)
        return bool(pairs)

    async def _return_tokens(self, budgets: list[RateBudget], now_s: float) -> bool:
        returns = [unused for one in budgets if (unused := one.unused(now_s))]
        if returns:
            await self._limiter.return_tokens(returns)
        return False

    async def _hold_places(self, budgets: list[PlaceBudget], now_s: float) -> bool:
        pairs = [(one, ask) for one in budgets if (ask := one.ask(now_s))]
        if pairs:
            asks = [ask for _, ask in pairs]
            held = await self._limiter.hold_places(asks, self._holder, PLACES_TTL_S)
            for (budget, _), places in zip(pairs, held, strict=True):
                budget.granted(places)
        return bool(pairs)

    async def _lease_totals(self, budgets: list[TotalBudget], now_s: float) -> bool:
        pairs = [(one, ask) for one in budgets if (ask := one.ask(now_s))]
        if pairs:
            allotted = await self._limiter.lease_totals([ask for _, ask in pairs])
            for (budget, _), amount in zip(pairs, allotted, strict=True):
                budget.granted(amount, now_s)
        return bool(pairs)
