"""From submitted to clicked: how many pushes came how far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Funnel:
    """Each step counts pushes; none is larger than the one before.

    `submitted` are the totals of the tasks where the registry knows them, else what has finished.
    `sent` went to their sink and came to an end there: delivered, or dead.
    """

    submitted: int
    sent: int
    delivered: int
    displayed: int
    clicked: int
    submitted_is_known: bool = False

    def steps(self) -> list[tuple[str, int]]:
        names = ("submitted", "sent", "delivered", "displayed", "clicked")
        return [(name, getattr(self, name)) for name in names]


def funnel(by_outcome: Mapping[str, int], submitted: int | None = None) -> Funnel:
    """The steps of what was counted; `submitted` of None is not known.

    Pushes that finished before the period began can be displayed in it: a step is cut to the one
    before.
    """
    delivered = by_outcome.get("delivered", 0)
    sent = delivered + by_outcome.get("dead", 0)
    finished = sent + by_outcome.get("expired", 0) + by_outcome.get("dropped", 0)
    displayed = min(by_outcome.get("displayed", 0), delivered)
    return Funnel(
        submitted=max(finished, submitted or 0),
        sent=sent,
        delivered=delivered,
        displayed=displayed,
        clicked=min(by_outcome.get("clicked", 0), displayed),
        submitted_is_known=submitted is not None,
    )
