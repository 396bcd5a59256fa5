"""Why the pushes of a task were not delivered, as counts of them.

A reason is a short class like `HTTP 404`, never what a sink or a push says in detail.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from pushlane.core.push import Kind
from pushlane.core.task import Finished

MOST_REASONS = 20
"""So many reasons of a task are told apart of each outcome; all behind them are `OTHER`."""

OTHER = "other"
DEAD_ADDRESS = "dead address"
"""The reason of a push whose address is dead: about its recipient, so not counted as failed."""


class Reasons(msgspec.Struct, frozen=True):
    """How many distinct seqs of a task ended for each reason, the commonest first.

    Of each outcome at most `MOST_REASONS` are told apart. What an older version has counted has
    no reason, unless it died: it is in `Progress` alone.
    """

    task_id: str
    dead: Mapping[str, int] = {}
    expired: Mapping[str, int] = {}
    dropped: Mapping[str, int] = {}

    def by_kind(self) -> dict[Kind, Mapping[str, int]]:
        return {Kind.DEAD: self.dead, Kind.EXPIRED: self.expired, Kind.DROPPED: self.dropped}

    @staticmethod
    def of(task_id: str, counts: Mapping[str, Mapping[str, int]]) -> Reasons:
        """Return what is counted of each outcome, with the commonest reason first."""
        return Reasons(
            task_id,
            dead=_commonest_first(counts.get(Kind.DEAD, {})),
            expired=_commonest_first(counts.get(Kind.EXPIRED, {})),
            dropped=_commonest_first(counts.get(Kind.DROPPED, {})),
        )


def counted_as(reason: str, known: Collection[str]) -> str:
    """Return the reason that a push counts for, where those known have counts already."""
    is_one_more = reason != DEAD_ADDRESS and reason not in known
    return OTHER if is_one_more and len(known) >= MOST_REASONS else reason


def has_failed(one: Finished) -> bool:
    """Tell whether these count as failed: they died, and not of a dead address."""
    return one.kind is Kind.DEAD and one.reason not in ("", DEAD_ADDRESS)


def _commonest_first(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
