"""The ports that lend something for a time, in memory: leases, claims, recipient turns, limits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pushlane.backends.cells import Cell, milliseconds, next_number
from pushlane.backends.guard_ports import (
    ClaimResult,
    PlaceAsk,
    RecipientTurn,
    Tally,
    TokenAsk,
    TokenGrant,
    TokenReturn,
    TotalAsk,
    Usage,
)
from pushlane.backends.limiter_rules import Holding, allotted, leased, placed
from pushlane.backends.memory.shared import LockAndClock, MemoryPort, one_step, pop_over
from pushlane.backends.ports import Grant
from pushlane.core.push import Push
from pushlane.core.task import Level
from pushlane.model.recipients import CapDay, Mark

_DAY_MS = 24 * 3600 * 1000
_LIVE_DAYS = 2
"""A date lasts 50 hours around the world, so that on one day in UTC three dates are seen."""


class MemoryCells(MemoryPort):
    """Cells of all three kinds (see `backends.cells`), of one port each.

    `numbers` has the last number of each key, which outlives its value.
    """

    def __init__(self, shared: LockAndClock) -> None:
        super().__init__(shared)
        self._cells: dict[str, Cell] = {}
        self._until_ms: dict[str, int] = {}
        self.numbers: dict[str, int] = {}

    @one_step
    def read(self, key: str) -> Cell | None:
        return self._living().get(key)

    @one_step
    def put_new(self, key: str, value: bytes, ttl_ms: int) -> Grant | None:
        return None if self._put(key, value, None) is None else self._last_until(key, ttl_ms)

    @one_step
    def put(self, key: str, value: bytes, over: int | None) -> int | None:
        return self._put(key, value, over)

    @one_step
    def renew(self, key: str, value: bytes, ttl_ms: int) -> Grant | None:
        return self._last_until(key, ttl_ms) if self._has(key, value) else None

    @one_step
    def drop(self, key: str, value: bytes) -> bool:
        return self._has(key, value) and self._remove(key)

    @one_step
    def remove(self, key: str, over: int | None = None) -> bool:
        there = self._living().get(key)
        is_another = over is not None and there is not None and there.number != over
        return not is_another and self._remove(key)

    @one_step
    def list(self, prefix: str) -> dict[str, Cell]:
        return {key: cell for key, cell in self._living().items() if key.startswith(prefix)}

    @one_step
    def show(self, key: str, value: bytes, ttl_ms: int) -> None:
        self._cells[key] = Cell(value, 0)
        self._last_until(key, ttl_ms)

    @one_step
    def values(self) -> Sequence[bytes]:
        return [cell.value for cell in self._living().values()]

    def _put(self, key: str, value: bytes, over: int | None) -> int | None:
        there = self._living().get(key)
        if (there.number if there else None) != over:
            return None
        number = self.numbers[key] = next_number(self.numbers.get(key, 0), self._now_ms)
        self._cells[key] = Cell(value, number)
        return number

    def _remove(self, key: str) -> bool:
        self._until_ms.pop(key, None)
        return self._living().pop(key, None) is not None

    def _has(self, key: str, value: bytes) -> bool:
        cell = self._living().get(key)
        return cell is not None and cell.value == value

    def _last_until(self, key: str, ttl_ms: int) -> Grant:
        """Start the time of what is there anew."""
        now = self._now_ms
        self._until_ms[key] = now + ttl_ms
        return Grant(self._cells[key].number, now)

    def _living(self) -> dict[str, Cell]:
        """Return the cells without those whose time is over, which are forgotten."""
        now = self._now_ms
        for key in [key for key, until_ms in self._until_ms.items() if until_ms <= now]:
            del self._until_ms[key], self._cells[key]
        return self._cells


class Claim(NamedTuple):
    """A claim on a push, or its confirmation when it has no owner. Times are Unix ms."""

    owner: str
    is_unknown: bool
    until_ms: int
    forget_at_ms: int


Claims = dict[tuple[str, int], Claim]


class MemoryLedger(MemoryPort):
    """See `guard_ports.Ledger`. The claims are those of all processes on the backend."""

    def __init__(self, shared: LockAndClock, claims: Claims, window_s: float) -> None:
        super().__init__(shared)
        self._claims = claims
        self._window_ms = milliseconds(window_s)

    @one_step
    def claim(
        self, pushes: Sequence[Push], owner: str, ttl_s: float, *, durable: bool = False
    ) -> list[ClaimResult]:
        now, ttl_ms = self._now_ms, milliseconds(ttl_s)
        pop_over(self._claims, lambda claim: claim.forget_at_ms <= now)
        return [self._claim((push.task_id, push.seq), owner, now, ttl_ms) for push in pushes]

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

    def _claim(self, place: tuple[str, int], owner: str, now: int, ttl_ms: int) -> ClaimResult:
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


class MarkState(NamedTuple):
    """The newest token of a key, and which owner has which token on its way. Times are Unix ms."""

    token: str
    holder: tuple[str, str] | None
    until_ms: int
    forget_at_ms: int

    def turn_of(self, mark: Mark, owner: str) -> RecipientTurn:
        if self.token != mark.token:
            return RecipientTurn.OVER
        return RecipientTurn.GO if self.holder == (owner, mark.token) else RecipientTurn.BUSY


class RecipientMemory:
    """What the recipient windows of all processes on a backend have in common."""

    def __init__(self) -> None:
        self.turns: dict[str, MarkState] = {}
        self.counted: dict[int, dict[int, dict[str, Level]]] = {}  # by day, key and token


class MemoryRecipientWindows(MemoryPort):
    """See `guard_ports.RecipientWindows`."""

    def __init__(self, shared: LockAndClock, memory: RecipientMemory, window_s: float) -> None:
        super().__init__(shared)
        self._turns = memory.turns
        self._counted = memory.counted
        self._window_ms = milliseconds(window_s)

    @one_step
    def first(self, marks: Sequence[Mark], window_s: float | None = None) -> list[bool]:
        window_ms = self._window_ms if window_s is None else milliseconds(window_s)
        forget_at_ms = self._sweep() + window_ms
        for mark in marks:
            if self._known(mark) is None:
                self._turns[mark.key] = MarkState(mark.token, None, 0, forget_at_ms)
        return [self._turns[mark.key].token == mark.token for mark in marks]

    @one_step
    def announce(self, marks: Sequence[Mark]) -> None:
        self._announce(marks, 0)

    @one_step
    def enter(self, marks: Sequence[Mark], owner: str, ttl_s: float) -> list[RecipientTurn]:
        now, ttl_ms = self._now_ms, milliseconds(ttl_s)
        self._announce(marks, ttl_ms)
        for mark in marks:
            turn, mine = self._turns[mark.key], (owner, mark.token)
            is_free = turn.holder in (None, mine) or turn.until_ms <= now
            if turn.token == mark.token and is_free:
                self._turns[mark.key] = turn._replace(holder=mine, until_ms=now + ttl_ms)
        return [self._turns[mark.key].turn_of(mark, owner) for mark in marks]

    @one_step
    def leave(self, marks: Sequence[Mark], owner: str) -> None:
        for mark in marks:
            turn = self._turns.get(mark.key)
            if turn and turn.holder == (owner, mark.token):
                self._turns[mark.key] = turn._replace(holder=None)

    @one_step
    def count(self, on: CapDay, keys: Mapping[str, int]) -> list[str]:
        oldest = self._now_ms // _DAY_MS - _LIVE_DAYS
        for day in [day for day in self._counted if day < oldest]:
            del self._counted[day]
        if min(on.cap) <= 0:
            return list(keys)
        return [token for token, key in keys.items() if not self._has_room(on, token, key)]

    @one_step
    def uncount(self, on: CapDay, keys: Mapping[str, int]) -> None:
        of_day = self._counted.get(on.day, {})
        for token, key in keys.items():
            of_day.get(key, {}).pop(token, None)

    def _announce(self, marks: Sequence[Mark], ttl_ms: int) -> None:
        forget_at_ms = self._sweep() + ttl_ms + self._window_ms
        for mark in marks:
            known = self._known(mark) or MarkState(mark.token, None, 0, 0)
            self._turns.pop(mark.key, None)  # so that the one to be forgotten last is the last
            self._turns[mark.key] = known._replace(
                token=max(known.token, mark.token), forget_at_ms=forget_at_ms
            )

    def _known(self, mark: Mark) -> MarkState | None:
        """Return what is remembered of the mark's key."""
        turn = self._turns.get(mark.key)
        return turn if turn and turn.forget_at_ms > self._now_ms else None

    def _sweep(self) -> int:
        """Forget marks whose window is over; return what time it is."""
        now = self._now_ms
        pop_over(self._turns, lambda turn: turn.forget_at_ms <= now)
        return now

    def _has_room(self, on: CapDay, token: str, key: int) -> bool:
        """Return whether a push has room, and count it if so."""
        counted = self._counted.setdefault(on.day, {}).setdefault(key, {})
        of_level = sum(level is on.level for level in counted.values())
        has_room = len(counted) < on.cap.in_all and of_level < on.cap.of_level
        if token not in counted and has_room:
            counted[token] = on.level
        return token in counted


class MemoryLimiter(MemoryPort):
    """See `guard_ports.Limiter`. What it answers to one ask is in `backends.limiter_rules`."""

    def __init__(self, shared: LockAndClock) -> None:
        super().__init__(shared)
        self._rates: dict[str, tuple[float, int]] = {}
        self._places: dict[str, dict[str, tuple[Holding, int]]] = defaultdict(dict)  # until when
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
            places, mine = placed(ask, self._holdings(ask.subject), holder, now)
            self._places[ask.subject][holder] = (mine, now + milliseconds(ttl_s))
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
        live = {holder: held for holder, held in places.items() if held[1] > now}
        self._places[subject] = live
        return {holder: holding for holder, (holding, _) in live.items()}

    def _in_flight(self, subject: str) -> int:
        return sum(holding.held for holding in self._holdings(subject).values())

    def _spent(self, subject: str, day: str) -> dict[str, float]:
        return {
            tally.what: sum(parts.values())
            for tally, parts in self._tallies.items()
            if tally.subject == subject and tally.day in ("", day)
        }
