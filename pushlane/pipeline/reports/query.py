"""One question to the store: which period, which receipts, broken down by what."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from pushlane.core.errors import BadInput
from pushlane.pipeline.reports.conditions import Condition
from pushlane.pipeline.reports.dimensions import Dimension, attributes_of

_MINUTE_MS = 60_000


@dataclass(frozen=True)
class Period:
    """A period from the start of a minute up to that of another; counts are kept by minute."""

    since_ms: int
    until_ms: int

    @staticmethod
    def of(since_ms: int, until_ms: int) -> Period:
        """Return the period of all minutes that these times touch.

        Raises:
            BadInput: it ends before it starts.
        """
        if until_ms <= since_ms:
            raise BadInput("the period ends before it starts: give an --until after --since")
        return Period(since_ms // _MINUTE_MS * _MINUTE_MS, -(-until_ms // _MINUTE_MS) * _MINUTE_MS)

    @property
    def length_ms(self) -> int:
        return self.until_ms - self.since_ms


@dataclass(frozen=True)
class Query:
    """A question; with an empty `by` its answer is one row, and every condition must hold."""

    period: Period
    by: tuple[Dimension, ...] = ()
    where: tuple[Condition, ...] = ()

    @property
    def attributes(self) -> tuple[str, ...]:
        """Return the names of the attributes in its breakdown and its conditions."""
        return attributes_of((*self.by, *(condition.dimension for condition in self.where)))

    @property
    def asks_reason(self) -> bool:
        used = (*self.by, *(condition.dimension for condition in self.where))
        return any(dimension.word == "reason" for dimension in used)

    @property
    def finest_ms(self) -> int:
        """Return the shortest step of time in its breakdown, or else the length of the period."""
        return min((d.step_ms for d in self.by if d.step_ms), default=self.period.length_ms)

    def filtered(self, *more: Condition) -> Query:
        """Return the query with these conditions in addition."""
        return Query(self.period, self.by, (*self.where, *more))

    def broken_down_by(self, *by: Dimension) -> Query:
        """Return the query with these dimensions instead of its own."""
        return Query(self.period, by, self.where)


def utc_text(at_ms: int) -> str:
    """Return the time in UTC to the minute, as reports show it."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
