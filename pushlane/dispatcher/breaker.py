"""Decides how many pushes may go to a sink that fails, and whose fault a failure is.

Pure: no I/O and no clock of its own; it is told what takes off and what came of it. It is made for
a whole sink, and serves a narrower scope (a host, an app) as well. It never sees a recipient or a
payload.

Three laws, of which each holds by itself; they share one state, and so one file:

*Throttling.* At most three pushes go for each that gets through. `_balance` is what may be lost
yet: a failure takes one, a success brings two, and no more may be in flight than it holds. That is
the client-side throttling of Google's SRE book (chapter 21) with the bookkeeping of gRPC's retry
throttling (proposal A6). The book's factor is 2; with 60 % random failures a factor of 2 dies out,
as each push brings only 2 x 0.4 others, so it is 3 here: stable down to a third of success. A sink
that accepts 100/s and refuses the rest is asked about 300 times a second, evenly, once what was
spared in good times is used up; and it is asked for all that it accepts.

*Opening.* Ten failures in a row that are about the sink, or under a tenth of success among 20 first
attempts (more of both where failures are usual), first let only a trickle through (`OPENING`). If
nothing was heard of the sink for 2 s, or less than a tenth of what trickles succeeds, it is taken
for down: nothing goes. So a sink that is only overloaded, and accepts something each second, is
throttled and keeps its capacity, and one that fails at random rests not at all. A storm of final
answers, as an ingress gives during a deployment, opens it too, and is believed after two hours.
Failures that are not surely about the sink count only on a first attempt: else what is left of a
task, when only its bad pushes are left, would open it for ever.

A target that has never delivered may be the wrong one. Twenty different pushes with final answers
that may be about the sink, and nothing between that shows that somebody there knows pushes (a
delivery, an answer about a push or its recipient), open it at once, for as long as the patience.

*Probing.* One push at a time, each after a quarter of the time for which the sink was failing when
the one before it went: at least 1 s, at most 3.4 to 4 s. So a sink is in use again soon after a
short outage, and within 5 s of its return after any; in s seconds it gets at most 6 + 0.3 s probes.
One that is silent is probed every 3.4 to 4 s from the beginning, as its probes may be dead. A
Retry-After makes it longer, up to 60 s. The first that gets through opens up: as many in flight as
doubles with each round of successes.

A sink that refuses our credentials for three pushes with no success between is held: it rests with
that reason, is probed once a minute or when it is told to, and no push loses an attempt however
long that takes. A push that alone is refused while others get through loses attempts.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import Enum, StrEnum, auto

import msgspec

from pushlane.core.push import DELIVERED, Kind, Outcome, Scope
from pushlane.dispatcher.failures import (
    CAUSES,
    SAME_PROBES,
    FailureShare,
    FinalRow,
    Flight,
    ProbeRotation,
    Sign,
    TargetStanding,
    TargetWords,
    doubt_text,
    sign_of,
)

PROBE_SOONEST_S = 1.0
PROBE_EVERY_S = (3.4, 4.0)
LONGEST_REST_S = 60.0
HOLD_PROBE_S = 60.0
TRICKLE_EVERY_S = 0.25
QUIET_S = 2.0
RISE_S = 5.0
STORM_PATIENCE_S = 7_200.0

_GAIN = 2.0  # with the success itself: three pushes for one
_SPARE = 100  # losses by chance that do not throttle, beside what is in flight
_ROW = 20  # failures that open; one that is surely about the sink counts for two of them
_SUCCESS_OUTWEIGHS = 9  # failures: under a tenth of success they add up
_TRIED = 20
_BAD_CREDENTIALS = 3
_ENOUGH = 2  # of those tried: a tenth
_REST_SHARE = 0.25  # of the time for which it was failing
_LATELY_S = 0.5
_ROUNDING = 1e-6
_WAIT_FIRST_S = 1.0
_WAIT_LONGEST_S = 30.0
_REFUSED_KNOWN = 10_000


_REFUSES_US = "it refuses our credentials"


class BreakerState(StrEnum):
    """The state of a breaker in words for people."""

    CLOSED = "closed"
    THROTTLED = "throttled"
    OPEN = "open"
    PROBING = "probing"
    RISING = "rising"


class _Phase(Enum):
    CLOSED = auto()
    OPENING = auto()
    OPEN = auto()
    RISING = auto()


class View(msgspec.Struct, frozen=True):
    """A breaker for people: its times are those of the clock that it is told of.

    `reason` is empty when it is closed; `next_try_s` is when the next probe is due, if it rests.
    `is_unproven`: it rests as its target has never delivered and gives final answers to all.
    """

    state: BreakerState
    since_s: float
    reason: str = ""
    next_try_s: float | None = None
    is_unproven: bool = False


class Restraint(msgspec.Struct, frozen=True):
    """Something that gets fewer pushes than there are. Times are Unix times in milliseconds.

    `refuses_us` tells that it is held until our credentials are mended; `is_unproven` that its
    target has never delivered and gives final answers to all.
    """

    scope: Scope
    state: BreakerState
    reason: str
    since_ms: int
    next_try_ms: int | None
    refuses_us: bool = False
    is_unproven: bool = False


def restraint(view: View, now_s: float, now_ms: int) -> Restraint | None:
    """Describe a sink that rests or is throttled; `now_s` is on the clock of the view."""
    if view.state is BreakerState.CLOSED:
        return None

    def unix_ms(at_s: float) -> int:
        return now_ms + round((at_s - now_s) * 1000)

    said = view.reason
    if view.state is BreakerState.RISING:
        said = f"it takes pushes again, more and more; before: {said}"
    since_ms, refuses_us = unix_ms(view.since_s), view.reason.startswith(_REFUSES_US)
    next_ms = None if view.next_try_s is None else unix_ms(view.next_try_s)
    return Restraint(Scope.SINK, view.state, said, since_ms, next_ms, refuses_us, view.is_unproven)


@dataclass(eq=False, repr=False)
class Breaker:
    """One for each sink, or narrower scope, of a process.

    `room` says how many pushes may be taken now; `admit` counts them and returns their permit. Just
    before they go, `is_valid` says whether that permit still stands: if not, or if a push does not
    go for another reason, it is given back. Each that went is reported to `landed`.

    `slots` is the most that is in flight. Failures are free of an attempt for `patience_s`.
    `quotes`: a sink's reasons may be shown to people, as they cannot hold a recipient. `chance`
    returns a random number from 0 up to 1.
    """

    slots: int
    patience_s: float
    _: KW_ONLY
    scope: Scope = Scope.SINK
    quotes: bool = False
    chance: Callable[[], float] = random.random

    def __post_init__(self) -> None:
        self._phase = _Phase.CLOSED
        self._since_s = 0.0
        self._epoch = 0
        self._in_flight = 0
        self._went_at_s = -math.inf
        self._answers = 0
        self._answers_per_s = 0.0
        self._paced_at_s = -math.inf
        self._gap_s = TRICKLE_EVERY_S
        self._most = float(_SPARE + 2 * self.slots)
        self._balance = self._most
        self._throttled_since_s: float | None = None
        self._doubt = 0
        self._refused_us: set[str] = set()
        self._refusals = 0
        self._must_try = False
        self._delivered_at_s = -math.inf
        self._failures = FailureShare()
        self._finals = FailureShare()
        self._final_row: FinalRow = {}
        self._has_succeeded = False
        self._known = TargetStanding.UNKNOWN
        self._words = TargetWords()
        self._heard_at_s: float | None = None
        self._tries = self._wins = 0
        self._down_since_s = 0.0
        self._cause = ""
        self._is_storm = False
        self._is_silent = False
        self._asked_until_s = -math.inf
        self._probe_at_s = math.inf
        self._is_probing = False
        self._step = 0.0
        self._believes_until_s = -math.inf
        self._refused: dict[str, tuple[float, int]] = {}
        self._rotation = ProbeRotation()

    @property
    def is_closed(self) -> bool:
        return self._phase is _Phase.CLOSED

    @property
    def rests(self) -> bool:
        """True while the sink is taken for down, and only probes go."""
        return self._phase is _Phase.OPEN

    @property
    def standing(self) -> TargetStanding:
        """The standing of its target; a delivery by this process counts, too."""
        return TargetStanding.PROVEN if self._has_succeeded else self._known

    def learn(
        self, now_s: float, known: TargetStanding, words: TargetWords, *, is_other: bool = False
    ) -> None:
        """Hear what is known of the target, and in which words to doubt it.

        `is_other`: it is another one than before, of which nothing was heard here. A sink that
        rests because its target was new goes on when its answers are accepted, and is tried at
        once when the target has delivered elsewhere.
        """
        if is_other:
            self._has_succeeded = False
            self._final_row.clear()
        was_new = self.standing is TargetStanding.NEW
        self._known, self._words = known, words
        waits_for_it = was_new and self.rests and self._is_storm
        if waits_for_it and known is TargetStanding.ACCEPTED:
            self._rise(now_s)
        elif waits_for_it and (known is TargetStanding.PROVEN or is_other):
            self.try_again(now_s)

    @property
    def is_choosy(self) -> bool:
        """True while so few go that it matters which."""
        return self._phase in (_Phase.OPENING, _Phase.OPEN)

    def room(self, now_s: float, free: int) -> int:
        """Return the number of `free` slots that may be filled now."""
        self._pass_time(now_s)
        if self._phase is _Phase.OPEN:
            return min(free, 1) if not self._is_probing and now_s >= self._probe_at_s else 0
        may_fly = self._balance
        if self._phase is _Phase.RISING:
            may_fly = min(may_fly, self._step)
        more = int(may_fly) - self._in_flight
        if more > 0 and self._is_paced:
            more = min(more, int((now_s - self._went_at_s) / self._gap_s + _ROUNDING))
        if more < 1 and now_s >= self._went_at_s + TRICKLE_EVERY_S:
            more = 1
        return max(0, min(free, more))

    @property
    def _is_paced(self) -> bool:
        """True while pushes go evenly: a small sink takes less of what comes in bursts."""
        return self._throttled_since_s is not None and self._phase is not _Phase.RISING

    def _pace(self, now_s: float) -> None:
        """Three for each answer that came lately."""
        past_s = max(1e-9, now_s - self._paced_at_s)
        kept = math.exp(-past_s / _LATELY_S)
        rate_per_s = self._answers / past_s
        self._answers_per_s = rate_per_s + (self._answers_per_s - rate_per_s) * kept
        self._answers = 0
        self._paced_at_s = now_s
        self._gap_s = 1 / max((1 + _GAIN) * self._answers_per_s, 1 / TRICKLE_EVERY_S)

    def wake_at_s(self) -> float | None:
        """Return when `room` may have grown though nothing has landed; None if it cannot.

        To be asked only after `room` left slots free: it may lie in the past while nothing is sent.
        """
        if self._phase is _Phase.OPEN:
            return None if self._is_probing else self._probe_at_s
        if self.is_closed and self._throttled_since_s is None:
            return None
        is_next = self._is_paced and int(self._balance) > self._in_flight
        return self._went_at_s + (self._gap_s if is_next else TRICKLE_EVERY_S)

    def try_again(self, now_s: float) -> None:
        """Let the next probe go at once, if it rests."""
        self._asked_until_s = -math.inf
        self._probe_at_s = now_s
        self._must_try = self._is_probing  # with what was mended since it went

    def choose(self, candidates: Sequence[Flight]) -> int:
        """Return the index of the one to try, while few may go.

        First what may be repeated, then what was tried least, then what no attempt was counted
        against, then of the app and the task that were not tried for longest: so a push, task or
        app that fails by itself does not keep the others waiting. Of several like these it is any,
        since what fails by itself often lies together.
        """

        def rank(at: int) -> tuple[object, ...]:
            return (*self._rotation.rank(candidates[at]), self.chance())

        return min(range(len(candidates)), key=rank)

    def admit(self, now_s: float, count: int) -> int:
        """Count pushes that take room. Returns their permit, which ends when the sink is down."""
        if self._heard_at_s is None:
            self._heard_at_s = now_s
        self._in_flight += count
        self._went_at_s = now_s
        self._is_probing = self._phase is _Phase.OPEN
        if self._throttled_since_s is not None:
            self._pace(now_s)
        return self._epoch

    def is_valid(self, permit: int) -> bool:
        """True as long as pushes with this permit may go: the sink was not found down meanwhile."""
        return permit == self._epoch

    def give_back(self, permit: int, count: int) -> None:
        """Count off pushes that were admitted and do not go."""
        if self.is_valid(permit):
            self._in_flight -= count
            self._is_probing = False

    def landed(self, now_s: float, permit: int, flight: Flight, outcome: Outcome) -> float | None:
        """Hear of a push that went.

        Returns None when it is to be settled as its outcome says. Else it loses nothing: its
        outcome is not settled, it stays unacked, and may be taken again after so many seconds.
        """
        if self._is_well and outcome is DELIVERED and permit == self._epoch:
            self._land_well(now_s, 1)
            self._refused.pop(flight.push_id, None)
            return None
        self._pass_time(now_s)
        sign = sign_of(outcome, self.scope)
        if sign is Sign.FINAL and self._believes(now_s):
            sign = Sign.OWN
        if permit == self._epoch:
            self._in_flight -= 1
            if sign in (Sign.SUCCESS, Sign.OWN, Sign.ELSEWHERE):
                self._on_answer(now_s, sign)
            else:
                sign = self._on_failure(now_s, sign, flight, outcome)
        is_troubled = not (self.is_valid(permit) and self.is_closed)
        is_rising = self.is_valid(permit) and self._phase is _Phase.RISING
        if outcome.refuses_us and is_troubled:
            is_free = True
        elif outcome.refuses_us and self._is_refused_alone(flight):
            is_free = False
        else:
            is_free = self._is_free(now_s, sign, flight, is_troubled, is_rising)
        if is_free:
            return self._wait_s(now_s, flight, outcome, is_troubled)
        if outcome.kind is not Kind.RETRY:
            self._refused.pop(flight.push_id, None)
        return None

    def _believes(self, now_s: float) -> bool:
        """Tell whether final answers are taken for the pushes' own."""
        return now_s < self._believes_until_s or self.standing is TargetStanding.ACCEPTED

    @property
    def _is_well(self) -> bool:
        """True while nothing has failed for long enough that a success tells nothing new."""
        return self._phase is _Phase.CLOSED and self._balance == self._most and not self._doubt

    def landed_well(self, now_s: float, permit: int, count: int) -> bool:
        """Count deliveries. Returns False if it has to know more of them: tell `landed` of each."""
        if not self._is_well or self._refused or permit != self._epoch:
            return False
        self._land_well(now_s, count)
        return True

    def _land_well(self, now_s: float, count: int) -> None:
        """Do what `landed` does, with less to do, for pushes that were delivered."""
        self._in_flight -= count
        self._heard_at_s = now_s
        self._has_succeeded = True
        self._delivered(now_s)
        self._answers += count
        if now_s >= self._paced_at_s + _LATELY_S:
            self._pace(now_s)
        self._failures.add_well(count)
        self._finals.add_well(count)
        if self._final_row:
            self._final_row.clear()

    def view(self) -> View:
        """Describe its state for people."""
        if self._phase is _Phase.OPEN:
            state = BreakerState.PROBING if self._is_probing else BreakerState.OPEN
            next_try_s = None if self._is_probing else self._probe_at_s
            is_unproven = self._is_storm and self.standing is TargetStanding.NEW
            return View(state, self._down_since_s, self._cause, next_try_s, is_unproven)
        if self._phase is _Phase.RISING:
            return View(BreakerState.RISING, self._since_s, self._cause)
        if self._phase is _Phase.OPENING:
            return View(BreakerState.THROTTLED, self._since_s, self._cause)
        if self._throttled_since_s is not None:
            reason = "under a third of the pushes get through"
            return View(BreakerState.THROTTLED, self._throttled_since_s, reason)
        return View(BreakerState.CLOSED, self._since_s)

    def _pass_time(self, now_s: float) -> None:
        if self._phase is _Phase.OPENING and self._is_quiet(now_s):
            self._open(now_s)
        elif self._phase is _Phase.RISING and now_s >= self._since_s + RISE_S and not self._doubt:
            self._enter(_Phase.CLOSED, now_s)

    def _is_quiet(self, now_s: float) -> bool:
        return self._heard_at_s is not None and now_s >= self._heard_at_s + QUIET_S

    def _on_answer(self, now_s: float, sign: Sign) -> None:
        """Note that somebody is there, who took the push or said that it is at fault itself."""
        self._heard_at_s = now_s
        self._answers += 1
        self._pace(now_s)
        self._balance = min(self._most, self._balance + _GAIN)
        if self._balance >= self._most:
            self._throttled_since_s = None
        self._doubt = max(0, self._doubt - _SUCCESS_OUTWEIGHS)
        self._failures.add(False)
        if sign is Sign.SUCCESS:
            self._has_succeeded = True
            self._delivered(now_s)
            self._finals.add(False)
        if sign is Sign.SUCCESS or self.standing is TargetStanding.NEW:
            self._final_row.clear()
        if self._phase is _Phase.OPEN:
            self._rise(now_s)
        elif self._phase is _Phase.RISING:
            self._step += 0.5 + self.chance()
            if self._step >= self.slots:
                self._throttled_since_s = None
                self._enter(_Phase.CLOSED, now_s)
        elif self._phase is _Phase.OPENING:
            self._wins += 1
            if self._wins >= _ENOUGH:
                self._enter(_Phase.CLOSED, now_s)

    def _on_failure(self, now_s: float, sign: Sign, flight: Flight, outcome: Outcome) -> Sign:
        """Returns the sign as it is to be taken."""
        self._is_silent = outcome.is_silent or sign is Sign.SILENT
        if not self.is_closed:
            self._rotation.add(flight)
        if outcome.refuses_us:
            return self._on_bad_credentials(now_s, sign, flight, outcome)
        if sign is Sign.REFUSED:
            self._heed(now_s, outcome.after_s)
        if self._phase is _Phase.OPEN:
            return self._on_failed_probe(now_s, sign, flight, outcome)
        if flight.is_charged and sign in (Sign.FAILED, Sign.SILENT):
            return sign  # it failed before, when others did not
        if sign is Sign.FINAL and self._phase is not _Phase.OPENING:
            self._on_final(now_s, flight, outcome)
            return sign
        self._lose(now_s, sign)
        if self._phase is _Phase.OPENING:
            self._tries += 1
            if self._tries > _TRIED - _ENOUGH:
                self._open(now_s)
        elif self._doubt >= max(_ROW, 2 * self._failures.row):
            self._suspect(now_s, sign, outcome)
        return sign

    def _on_final(self, now_s: float, flight: Flight, outcome: Outcome) -> None:
        """Count it; a row of them is a storm, or shows that a new target may be the wrong one."""
        self._finals.add(True)
        if self.standing is not TargetStanding.UNKNOWN:
            self._final_row[flight.push_id] = outcome.reason
        if self.standing is TargetStanding.NEW and self.is_closed:
            self._rotation.add(flight)
        if len(self._final_row) < max(_ROW, self._finals.row):
            return
        if self.standing is TargetStanding.NEW:
            if self.is_closed:
                self._down_since_s = now_s
            self._doubt_target()
            self._open(now_s)
        else:
            self._suspect(now_s, Sign.FINAL, outcome)

    def _doubt_target(self) -> None:
        """Put the row of final answers down to the target."""
        self._is_storm = True
        self._cause = doubt_text(self._final_row, self._words, quotes=self.quotes)

    def _delivered(self, now_s: float) -> None:
        """Note that our credentials are good."""
        self._delivered_at_s = now_s
        if self._refusals:
            self._refused_us.clear()
            self._refusals = 0

    def _on_bad_credentials(
        self, now_s: float, sign: Sign, flight: Flight, outcome: Outcome
    ) -> Sign:
        """Hold the sink until somebody mends them; what refuses one push may be about that push."""
        self._refusals += 1
        self._refused_us.add(flight.push_id)
        self._rotation.add(flight)
        several = len(self._refused_us) if self._has_succeeded else self._refusals
        if several < _BAD_CREDENTIALS and self._phase is not _Phase.OPEN:
            return sign
        self._blame(_REFUSES_US, outcome)
        self._is_storm = self._is_storm and self.standing is not TargetStanding.NEW
        if self._phase is not _Phase.OPEN:
            if self.is_closed:
                self._down_since_s = now_s
            self._open(now_s)
        self._is_probing = False
        wait_s = 0.0 if self._must_try else HOLD_PROBE_S * (1 + self.chance() / 10)
        self._must_try = False
        self._probe_at_s = now_s + wait_s
        return sign

    def _on_failed_probe(self, now_s: float, sign: Sign, flight: Flight, outcome: Outcome) -> Sign:
        """Let the sink rest on; but one that says no for so long is believed."""
        is_new = self.standing is TargetStanding.NEW
        patience_s = self.patience_s if is_new else STORM_PATIENCE_S
        is_old = now_s >= self._down_since_s + patience_s
        if sign is Sign.FINAL and self._is_storm and is_old:
            self._believes_until_s = now_s + patience_s
            self._rise(now_s)
            return Sign.OWN
        if sign is Sign.FINAL and is_new and not self._is_storm:
            self._final_row[flight.push_id] = outcome.reason
            if len(self._final_row) >= _ROW:
                self._doubt_target()
        self._is_probing = False
        self._rest(self._went_at_s, now_s)
        return sign

    def _lose(self, now_s: float, sign: Sign) -> None:
        self._balance = max(0.0, self._balance - 1.0)
        if self._balance < self.slots and self._throttled_since_s is None:
            self._throttled_since_s = now_s
        self._doubt += 2 if sign is Sign.REFUSED else 1
        self._failures.add(True)

    def _suspect(self, now_s: float, sign: Sign, outcome: Outcome) -> None:
        """Let only a trickle go until it is known whether the sink is down."""
        if self.is_closed:
            self._down_since_s = now_s
        self._blame(CAUSES[sign], outcome)
        self._is_storm = sign is Sign.FINAL
        self._recall()
        self._balance = 0.0
        self._throttled_since_s = now_s
        self._enter(_Phase.OPENING, now_s)
        self._pass_time(now_s)

    def _blame(self, cause: str, outcome: Outcome) -> None:
        is_quoted = self.quotes and outcome.reason
        self._cause = f"{cause}: {outcome.reason}" if is_quoted else cause

    def _open(self, now_s: float) -> None:
        self._recall()
        self._enter(_Phase.OPEN, now_s)
        tried_at_s = max(self._went_at_s, self._down_since_s)
        self._rest(now_s if self._is_silent else tried_at_s, now_s)

    def _recall(self) -> None:
        """End the permit of all that were admitted; what comes of them says nothing new."""
        self._epoch += 1
        self._in_flight = 0
        self._is_probing = False

    def _rest(self, after_s: float, now_s: float) -> None:
        """Set the next probe: so long after the last push went, and as long as was asked for."""
        first_s, last_s = PROBE_EVERY_S
        rest_s = first_s + (last_s - first_s) * self.chance()
        if not self._is_silent:
            failed_s = after_s - self._down_since_s
            rest_s = min(rest_s, max(PROBE_SOONEST_S, _REST_SHARE * failed_s))
        due_s = after_s + rest_s
        self._probe_at_s = min(max(due_s, self._asked_until_s), now_s + LONGEST_REST_S)

    def _rise(self, now_s: float) -> None:
        self._is_probing = False
        self._balance = self._step = 1.0
        self._enter(_Phase.RISING, now_s)

    def _enter(self, phase: _Phase, now_s: float) -> None:
        self._phase = phase
        self._since_s = now_s
        self._doubt = self._tries = self._wins = 0
        self._final_row.clear()
        if phase is _Phase.CLOSED:
            self._asked_until_s = -math.inf
            self._rotation = ProbeRotation()

    def _heed(self, now_s: float, after_s: float | None) -> None:
        """Take over a wait that the sink asks for; a failed probe that names none takes it back."""
        if after_s is not None and after_s > 0:
            wait_s = min(after_s, LONGEST_REST_S)
            self._asked_until_s = now_s + wait_s * (1 + self.chance() / 10)
        elif self._phase is _Phase.OPEN:
            self._asked_until_s = -math.inf

    def _is_refused_alone(self, flight: Flight) -> bool:
        """Tell whether a push was refused again and again while others were delivered."""
        since_s, times = self._refused.get(flight.push_id, (math.inf, 0))
        return times >= SAME_PROBES and self._delivered_at_s > since_s

    def _is_free(
        self, now_s: float, sign: Sign, flight: Flight, is_troubled: bool, is_rising: bool
    ) -> bool:
        """Once others get through again, a failure is the push's own: else it went for ever."""
        if sign in (Sign.SUCCESS, Sign.OWN, Sign.SILENT):
            return False
        if sign is Sign.FAILED and (flight.is_charged or not is_troubled or is_rising):
            return False
        if sign is Sign.FINAL and is_rising and self._rotation.times(flight) >= SAME_PROBES:
            return False
        if sign is Sign.FINAL and not is_troubled:
            return False
        if not self.is_closed and now_s >= self._down_since_s + self.patience_s:
            return False
        since_s, _ = self._refused.get(flight.push_id, (now_s, 0))
        return now_s < since_s + self.patience_s

    def _wait_s(self, now_s: float, flight: Flight, outcome: Outcome, is_troubled: bool) -> float:
        """Zero in an outage, when the breaker itself rests, so that a push is there to probe with.

        Else longer each time, so that a push that is refused alone is not tried all the time.
        """
        since_s, times = self._refused.pop(flight.push_id, (now_s, 0))
        self._refused[flight.push_id] = (since_s, times + (not is_troubled))
        if len(self._refused) > _REFUSED_KNOWN:
            del self._refused[next(iter(self._refused))]
        if is_troubled:
            return 0.0
        wait_s = min(_WAIT_LONGEST_S, _WAIT_FIRST_S * 2.0 ** min(times, 30))
        asked_s = outcome.after_s if outcome.after_s is not None and outcome.after_s > 0 else 0.0
        return max(wait_s * (0.5 + self.chance() / 2), min(asked_s, LONGEST_REST_S))
