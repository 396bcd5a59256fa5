"""Reads failures and final answers as signs about a sink, and remembers them for a breaker. Pure.

A final answer, like HTTP 404, may be about its push, or about a URL with a mistake in it. A target
that has delivered is known to be right. One that never has is not, so a row of such answers is
counted, and told in words that hold nothing of a push: no recipient and no payload gets here.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass
from enum import Enum, auto

import msgspec

from pushlane.core.push import Arrival, Kind, Outcome, Scope
from pushlane.dispatcher.stats import as_label

_CHANCE = math.log(1e-9)
_HIGHEST_SHARE = 0.9
_LANDINGS_KNOWN = 200
SAME_PROBES = 5
_PROBED_KNOWN = 1_000
_WIDTH = {scope: width for width, scope in enumerate(Scope)}


class Sign(Enum):
    """Read an outcome as a sign about the breaker's scope."""

    SUCCESS = auto()
    REFUSED = auto()
    """It cannot take pushes now: surely its own fault, so the push loses no attempt."""
    FAILED = auto()
    """A failure that may be the push's own."""
    SILENT = auto()
    """No answer in time, and the push is dead by promise: it may have arrived."""
    FINAL = auto()
    """A final answer that a broken sink may give as well."""
    OWN = auto()
    """About the push itself: who says so is there."""
    ELSEWHERE = auto()
    """Something narrower cannot take pushes now; the push loses no attempt."""


class Flight(msgspec.Struct, frozen=True, gc=False):
    """A push, as far as a breaker has to know it.

    `is_charged`: an attempt was counted against it before. `may_repeat`: a failure does not bury it
    (it is not of an at_most_once task).
    """

    push_id: str
    task_id: str
    app: str
    is_charged: bool = False
    may_repeat: bool = True


def sign_of(outcome: Outcome, scope: Scope = Scope.SINK) -> Sign:
    """Read an outcome as a breaker of this scope has to: one about more counts as about it."""
    if outcome.kind is Kind.DELIVERED:
        return Sign.SUCCESS
    about = outcome.scope
    is_ours = about is None or _WIDTH[about] >= _WIDTH[scope]
    if outcome.kind is Kind.DEAD and is_ours:
        return Sign.SILENT if outcome.arrival is Arrival.UNKNOWN else Sign.FINAL
    if outcome.kind is not Kind.RETRY or outcome.pause_task or about is Scope.PUSH:
        return Sign.OWN
    if about is None:
        return Sign.FAILED
    return Sign.REFUSED if is_ours else Sign.ELSEWHERE


CAUSES = {
    Sign.REFUSED: "it takes no pushes now",
    Sign.FAILED: "nearly all first attempts fail",
    Sign.SILENT: "it does not answer in time",
    Sign.FINAL: "nearly all pushes get a final answer, as from a sink that is being deployed",
}


@dataclass(slots=True, eq=False)
class FailureShare:
    """The share of failures among the last landings, as it was when the last row of them began."""

    _count: int = 0
    _share: float = 0.0
    _known: float = 0.0

    def add(self, failed: bool) -> None:
        if self._count == _LANDINGS_KNOWN and not failed and not self._share:
            return
        self._count = min(self._count + 1, _LANDINGS_KNOWN)
        self._share += (failed - self._share) / self._count
        if not failed:
            self._known = self._share

    def add_well(self, count: int) -> None:
        """Count pushes that have not failed."""
        if self._share or self._count < _LANDINGS_KNOWN:
            for _ in range(count):
                self.add(False)

    @property
    def row(self) -> float:
        """Return the length of a row of failures that is more than chance."""
        share = min(self._known, _HIGHEST_SHARE)
        return _CHANCE / math.log(share) if share > 0 else 0.0


class ProbeRotation:
    """Remembers what failed in this outage and when, so that all have their turn as a probe."""

    def __init__(self) -> None:
        self._order = itertools.count(1)
        self._times: dict[str, int] = {}
        self._tasks: dict[str, int] = {}
        self._apps: dict[str, int] = {}

    def add(self, flight: Flight) -> None:
        at = next(self._order)
        _remember(self._times, flight.push_id, self.times(flight) + 1)
        _remember(self._tasks, flight.task_id, at)
        _remember(self._apps, flight.app, at)

    def times(self, flight: Flight) -> int:
        """Return how often it failed, as far as that is known."""
        return self._times.get(flight.push_id, 0)

    def rank(self, flight: Flight) -> tuple[bool, bool, int, bool, int, int]:
        """Rank a push; the lowest is next. Five failures outweigh that it may be repeated."""
        times = self.times(flight)
        return (
            times >= SAME_PROBES,
            not flight.may_repeat,
            times,
            flight.is_charged,
            self._apps.get(flight.app, 0),
            self._tasks.get(flight.task_id, 0),
        )


def _remember(known: dict[str, int], key: str, value: int) -> None:
    """Keep it as the newest; the oldest is forgotten."""
    known.pop(key, None)
    known[key] = value
    if len(known) > _PROBED_KNOWN:
        del known[next(iter(known))]


class TargetStanding(Enum):
    """The knowledge of a sink's target, from all processes that ever delivered to it."""

    UNKNOWN = auto()
    """Nobody keeps it: its final answers are believed until it delivers here."""

    NEW = auto()
    """It has never delivered: a row of final answers makes the sink rest."""

    ACCEPTED = auto()
    """It has never delivered, and somebody has said that its final answers are right."""

    PROVEN = auto()
    """It has delivered."""


class TargetWords(msgspec.Struct, frozen=True):
    """The words for a target that may be the wrong one: what it is, and what to ask about it."""

    who: str = "it"
    question: str = "is it set up right?"


FinalRow = dict[str, str]
"""Final answers that may be about the sink, with nothing between: reasons by the push's id."""


def doubt_text(row: FinalRow, words: TargetWords, *, quotes: bool) -> str:
    """Say what was answered; without `quotes` no reason is named, as it may hold anything."""
    all_of_them = f"to all {len(row)} pushes"
    labels = Counter(as_label(reason, is_own_words=False) for reason in row.values())
    [(most, times)] = labels.most_common(1)
    said = f"has given final answers {all_of_them}"
    if quotes:
        is_same = times == len(row)
        said = f"has answered {most} {all_of_them}" if is_same else f"{said}, most often {most}"
    return f"{words.who} {said}: {words.question}"
