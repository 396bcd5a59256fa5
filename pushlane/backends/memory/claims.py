"""What processes hold for a time, in memory: leases, claims of pushes, turns, limits, presence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pushlane.backends.limiter_rules import Holding, allotted, leased, placed
from pushlane.backends.memory.shared import LockAndClock, MemoryPort, one_step, pop_over
from pushlane.backends.ports import (
    ClaimResult,
    Fence,
    Grant,
    PlaceAsk,
    RecipientTurn,
    Tally,
    TokenAsk,
    TokenGrant,
    TokenReturn,
    TotalAsk,
    Usage,
)
from pushlane.core.push import Push
from pushlane.core.task import Level
from pushlane.model.presence import Process, decode_all, encode, newer_than_ours
from pushlane.model.recipients import CapDay, Mark
from pushlane.util.errors import Superseded

_DAY_MS = 24 * 3600 * 1000
_LIVE_DAYS = 2
"""A date lasts 50 hours around the world, so that on one day in UTC three dates are seen."""


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


class _Held(NamedTuple):
    """Who has a lease, until when (Unix ms), and under which number."""

    holder: str
    until_ms: int
    number: int


class MemoryLease(MemoryPort):
    """See `core.ports.Lease`."""

    def __init__(self, shared: LockAndClock) -> None:
        super().__init__(shared)
        self._leases: dict[str, _Held] = {}

    @one_step
    def acquire(self, name: str, holder: str, ttl_s: float) -> Grant | None:
        now = self._now_ms
        known = self._leases.get(name, _Held("", 0, 0))
        if known.until_ms <= now:
            known = _Held(holder, 0, known.number + 1)
        if known.holder != holder:
            return None
        self._leases[name] = known._replace(until_ms=now + _ms(ttl_s))
        return Grant(known.number, now)

    @one_step
    def release(self, name: str, holder: str) -> None:
        known = self._leases.get(name)
        if known and known.holder == holder:
            self._leases[name] = known._replace(until_ms=0)

    @one_step
    def is_held(self, name: str) -> bool:
        return name in self._leases and self._leases[name].until_ms > self._now_ms

    def check(self, fence: Fence | None) -> None:
        """Check a fence, within the step of the change that carries it.

        Raises:
            Superseded: the lease went to another since.
        """
        if fence is None:
            return
        known = self._leases.get(fence.lease)
        if known is None or known.number != fence.number:
            raise Superseded(
                f"the lease {fence.lease} is another process's now: nothing was changed"
            )


class Claim(NamedTuple):
    """A claim on a push, or its confirmation when it has no owner. Times are Unix ms."""

    owner: str
    is_unknown: bool
    until_ms: int
    forget_at_ms: int


Claims = dict[tuple[str, int], Claim]


class MemoryLedger(MemoryPort):
    """See `core.ports.Ledger`. The claims are those of all processes on the backend."""

    def __init__(self, shared: LockAndClock, claims: Claims, window_s: float) -> None:
        super().__init__(shared)
        self._claims = claims
        self._window_ms = _ms(window_s)

    @one_step
    def claim(
        self, pushes: Sequence[Push], owner: str, ttl_s: float, *, durable: bool = False
    ) -> list[ClaimResult]:
        self._sweep()
        return [self._claim((push.task_id, push.seq), owner, _ms(ttl_s)) for push in pushes]

    @one_step
    def confirm(self, pushes: Sequence[Push]) -> None:
        new = Claim("", False, 0, self._now_ms + self._window_ms)
        for push in pushes:
            place = (push.task_id, push.seq)
            self._claims[place] = self._claims.get(place, new)._replace(owner="")

    @one_step
    def release(self, pushes: Sequence[Push], owner: str) -> None:
        for push in pushes:
            place = (push.task_id, push.seq)
            if place in self._claims and self._claims[place].owner == owner:
                del self._claims[place]

    def _claim(self, place: tuple[str, int], owner: str, ttl_ms: int) -> ClaimResult:
        now = self._now_ms
        known = self._claims.get(place)
        if known is None or known.forget_at_ms <= now:
            is_unknown = False
        elif known.owner == owner:
            is_unknown = known.is_unknown
        elif not known.owner:
            return ClaimResult.CONFIRMED
        elif known.until_ms > now:
            return ClaimResult.HELD
        else:
            is_unknown = True
        self._claims.pop(place, None)  # so that the one to be forgotten last is the last
        self._claims[place] = Claim(owner, is_unknown, now + ttl_ms, now + ttl_ms + self._window_ms)
        return ClaimResult.UNKNOWN if is_unknown else ClaimResult.WON

    def _sweep(self) -> None:
        pop_over(self._claims, lambda claim: claim.forget_at_ms, self._now_ms)


class MarkState(NamedTuple):
    """The newest token of a key, and which owner has which token on its way. Times are Unix ms."""

    token: str
    holder: tuple[str, str] | None
    until_ms: int
    forget_at_ms: int


class RecipientMemory:
    """What the recipient windows of all processes on a backend have in common."""

    def __init__(self) -> None:
        self.turns: dict[str, MarkState] = {}
        self.counted: dict[tuple[int, int], dict[str, Level]] = defaultdict(dict)
        self.oldest_day = 0


class MemoryRecipientWindows(MemoryPort):
    """See `core.ports.RecipientWindows`."""

    def __init__(self, shared: LockAndClock, memory: RecipientMemory, window_s: float) -> None:
        super().__init__(shared)
        self._memory = memory
        self._turns = memory.turns
        self._counted = memory.counted
        self._window_ms = _ms(window_s)

    @one_step
    def first(self, marks: Sequence[Mark]) -> list[bool]:
        self._sweep()
        for mark in marks:
            if self._known(mark) is None:
                self._turns[mark.key] = self._new(mark, 0)
        return [self._turns[mark.key].token == mark.token for mark in marks]

    @one_step
    def announce(self, marks: Sequence[Mark]) -> None:
        self._announce(marks, 0)

    @one_step
    def enter(self, marks: Sequence[Mark], owner: str, ttl_s: float) -> list[RecipientTurn]:
        now, ttl_ms = self._now_ms, _ms(ttl_s)
        self._announce(marks, ttl_ms)
        for mark in marks:
            turn, mine = self._turns[mark.key], (owner, mark.token)
            is_free = turn.holder in (None, mine) or turn.until_ms <= now
            if turn.token == mark.token and is_free:
                self._turns[mark.key] = turn._replace(holder=mine, until_ms=now + ttl_ms)
        return [self._turn_of(mark, owner) for mark in marks]

    @one_step
    def leave(self, marks: Sequence[Mark], owner: str) -> None:
        for mark in marks:
            turn = self._turns.get(mark.key)
            if turn and turn.holder == (owner, mark.token):
                self._turns[mark.key] = turn._replace(holder=None)

    @one_step
    def count(self, on: CapDay, keys: Mapping[str, int]) -> list[str]:
        self._forget_days()
        if min(on.cap) <= 0:
            return list(keys)
        return [token for token, key in keys.items() if not self._has_room(on, token, key)]

    @one_step
    def uncount(self, on: CapDay, keys: Mapping[str, int]) -> None:
        for token, key in keys.items():
            self._counted[on.day, key].pop(token, None)

    def _announce(self, marks: Sequence[Mark], ttl_ms: int) -> None:
        self._sweep()
        for mark in marks:
            new, known = self._new(mark, ttl_ms), self._known(mark)
            if known is not None:
                token = max(known.token, mark.token)
                new = known._replace(token=token, forget_at_ms=new.forget_at_ms)
            self._turns.pop(mark.key, None)  # so that the one to be forgotten last is the last
            self._turns[mark.key] = new

    def _new(self, mark: Mark, ttl_ms: int) -> MarkState:
        return MarkState(mark.token, None, 0, self._now_ms + ttl_ms + self._window_ms)

    def _known(self, mark: Mark) -> MarkState | None:
        """Return what is remembered of the mark's key."""
        turn = self._turns.get(mark.key)
        return turn if turn and turn.forget_at_ms > self._now_ms else None

    def _turn_of(self, mark: Mark, owner: str) -> RecipientTurn:
        turn = self._turns[mark.key]
        if turn.token != mark.token:
            return RecipientTurn.OVER
        return RecipientTurn.GO if turn.holder == (owner, mark.token) else RecipientTurn.BUSY

    def _has_room(self, on: CapDay, token: str, key: int) -> bool:
        """Return whether a push has room, and count it if so."""
        counted = self._counted[on.day, key]
        of_level = sum(level is on.level for level in counted.values())
        has_room = len(counted) < on.cap.in_all and of_level < on.cap.of_level
        if token not in counted and has_room:
            counted[token] = on.level
        return token in counted

    def _forget_days(self) -> None:
        """Forget the days that are over everywhere, once a day."""
        oldest = self._now_ms // _DAY_MS - _LIVE_DAYS
        if oldest <= self._memory.oldest_day:
            return
        self._memory.oldest_day = oldest
        for place in [place for place in self._counted if place[0] < oldest]:
            del self._counted[place]

    def _sweep(self) -> None:
        pop_over(self._turns, lambda turn: turn.forget_at_ms, self._now_ms)


class _HeldPlaces(NamedTuple):
    """What a holder has of a cap, until when (Unix ms)."""

    holding: Holding
    until_ms: int


class MemoryLimiter(MemoryPort):
    """See `core.ports.Limiter`. What it answers to one ask is in `backends.limiter_rules`."""

    def __init__(self, shared: LockAndClock) -> None:
        super().__init__(shared)
        self._rates: dict[str, tuple[float, int]] = {}
        self._places: dict[str, dict[str, _HeldPlaces]] = defaultdict(dict)
        self._tallies: dict[Tally, dict[str, float]] = defaultdict(dict)

    @one_step
    def lease_tokens(self, asks: Sequence[TokenAsk]) -> list[TokenGrant]:
        grants = []
        for ask in asks:
            known = self._rates.get(ask.subject)
            grant, self._rates[ask.subject] = leased(ask, known, self._now_ms)
            grants.append(grant)
        return grants

    @one_step
    def return_tokens(self, returns: Sequence[TokenReturn]) -> None:
        for one in returns:
            if one.subject in self._rates:
                tokens, at_ms = self._rates[one.subject]
                more = max(tokens, min(one.burst, tokens + one.tokens))
                self._rates[one.subject] = (more, at_ms)

    @one_step
    def hold_places(self, asks: Sequence[PlaceAsk], holder: str, ttl_s: float) -> list[int]:
        now, answers = self._now_ms, []
        for ask in asks:
            known = self._holdings(ask.subject)
            places, mine = placed(ask, known, holder, now)
            self._places[ask.subject][holder] = _HeldPlaces(mine, now + _ms(ttl_s))
            answers.append(places)
        return answers

    @one_step
    def lease_totals(self, asks: Sequence[TotalAsk]) -> list[float]:
        amounts = []
        for ask in asks:
            known = self._tallies[ask.tally]
            known[ask.holder] = allotted(ask, known)
            amounts.append(known[ask.holder])
        return amounts

    @one_step
    def usage(self, subjects: Sequence[str], day: str) -> list[Usage]:
        return [Usage(self._in_flight(one), self._spent(one, day)) for one in subjects]

    @one_step
    def forget(self, subjects: Sequence[str]) -> None:
        for one in subjects:
            self._rates.pop(one, None)
            self._places.pop(one, None)
        for tally in [tally for tally in self._tallies if tally.subject in subjects]:
            del self._tallies[tally]

    def _holdings(self, subject: str) -> dict[str, Holding]:
        """Return what each holder has whose time is not over, and drop the others."""
        now, places = self._now_ms, self._places[subject]
        live = {holder: one for holder, one in places.items() if one.until_ms > now}
        self._places[subject] = live
        return {holder: one.holding for holder, one in live.items()}

    def _in_flight(self, subject: str) -> int:
        return sum(holding.held for holding in self._holdings(subject).values())

    def _spent(self, subject: str, day: str) -> dict[str, float]:
        return {
            tally.what: sum(parts.values())
            for tally, parts in self._tallies.items()
            if tally.subject == subject and tally.day in ("", day)
        }


class MemoryPresence(MemoryPort):
    """See `core.ports.Presence`."""

    def __init__(self, shared: LockAndClock) -> None:
        super().__init__(shared)
        self._processes: dict[str, tuple[int, bytes]] = {}  # until when, and its own words

    @one_step
    def announce(self, process: Process, ttl_s: float) -> None:
        self._processes[process.id] = (self._now_ms + _ms(ttl_s), encode(process))

    @one_step
    def list(self) -> list[Process]:
        return decode_all(self._live())

    @one_step
    def newer(self) -> Sequence[str]:
        return newer_than_ours(self._live())

    @one_step
    def leave(self, process_id: str) -> None:
        self._processes.pop(process_id, None)

    def _live(self) -> Sequence[bytes]:
        now = self._now_ms
        self._processes = {one: row for one, row in self._processes.items() if row[0] > now}
        return [body for _, body in self._processes.values()]
