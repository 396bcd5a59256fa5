"""The tokens of one subject's rate that this process has leased. Pure: it is told the time.

It leases what it is about to use in some 60 ms, and gives back what it did not use soon after: so
what all processes have in hand together is a small part of the rate, however many they are.
"""

from __future__ import annotations

import random

from pushlane.lanes.ports import TokenAsk, TokenGrant, TokenReturn

BURST_S = 0.1
"""So much of a rate gathers in the store while nobody asks, and is the most that is leased."""

PACE_S = 0.03
"""So often a budget asks at most."""

KEPT_S = 0.3
"""What was not used for so long is given back."""

ROUNDING = 1e-9
_FIRST_PART = 0.2
_LONGEST_WAIT_S = 5.0


class RateBudget:
    """Tokens to spend at once. One push more than a burst goes from a full one, into debt."""

    def __init__(self, subject: str, rate_per_s: float) -> None:
        self.subject = subject
        self._rate_per_s = rate_per_s
        self.tokens = 0.0
        self._missing = 0.0
        self._cost = 1.0
        self._used = 0.0
        self._pace = 0.0
        self._granted_at_s = 0.0
        self._next_ask_s = 0.0

    @property
    def _burst(self) -> float:
        return self._rate_per_s * BURST_S

    def set_rate(self, rate_per_s: float) -> None:
        """Ask by another rate from now on; of what is in hand no more than its burst is kept."""
        if rate_per_s != self._rate_per_s:
            self._rate_per_s = rate_per_s
            self.tokens = min(self.tokens, self._burst)
            self._next_ask_s = 0.0

    def has_room(self, cost: float, now_s: float) -> bool:
        return self.tokens >= cost - ROUNDING

    def room(self, cost: float) -> float:
        """Return how many pushes of this cost have room."""
        return self.tokens / cost

    def miss(self, cost: float) -> None:
        """Note that a push waits for its tokens."""
        self._missing = max(self._missing, cost)

    def unmiss(self) -> None:
        """Forget who waited: those that still do say so again."""
        self._missing = 0.0

    def take(self, cost: float) -> None:
        self.tokens -= cost
        self._used += cost
        self._cost = cost

    def give_back(self, cost: float) -> None:
        """Take back the tokens of a push that did not go."""
        self.tokens += cost
        self._used = max(0.0, self._used - cost)

    def ask(self, now_s: float) -> TokenAsk | None:
        """Return what to ask for now, None when nothing is needed."""
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

    def granted(self, grant: TokenGrant, now_s: float) -> None:
        """Take what the store granted, or wait as long as it says that it takes."""
        self.tokens += grant.tokens
        if grant.tokens:
            self._granted_at_s = now_s
            self._missing = 0.0
        else:
            wait_s = min(grant.wait_s, _LONGEST_WAIT_S) * random.uniform(1.0, 1.1)
            self._next_ask_s = now_s + max(PACE_S, wait_s)

    def unused(self, now_s: float, *, at_once: bool = False) -> TokenReturn | None:
        """Return what is to be given back now, and have it no longer."""
        is_kept = self._missing or now_s < self._granted_at_s + KEPT_S
        if self.tokens <= ROUNDING or (is_kept and not at_once):
            return None
        tokens, self.tokens = self.tokens, 0.0
        return TokenReturn(self.subject, self._burst, tokens)

    @property
    def is_idle(self) -> bool:
        """Tell whether it needs nothing of the store until it is missed again."""
        return not self._missing and self.tokens <= ROUNDING and not self._used
