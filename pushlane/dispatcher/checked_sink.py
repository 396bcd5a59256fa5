"""A sink whose answers can be relied on: an outcome for each push, and nothing raised.

A sink may be somebody else's code. What it answers wrongly counts as not heard of, and what pushes
hold is taken out of its reasons, before anybody sees them.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from typing import Any

from pushlane.core.ports import Delivery, Sink
from pushlane.core.push import DELIVERED, Arrival, Kind, Outcome, Scope
from pushlane.dispatcher.stats import without_values

log = logging.getLogger("pushlane.checked_sink")


class CheckedSink:
    """A sink, in all but its faults: one that fails as a whole means a retry of each push."""

    name: str
    hosts_code: bool
    # Asked for each batch, and by far quicker so than by __getattr__.
    batch_size: int = property(lambda self: self._sink.batch_size)  # type: ignore[assignment]
    mixes_tasks: bool = property(lambda self: self._sink.mixes_tasks)  # type: ignore[assignment]

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)  # what it says of itself, which may change

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        """Return the sink's outcomes, or retries. Raises nothing but a cancellation of ours."""
        try:
            outcomes = await self._sink.deliver(batch)
            fault = _fault(outcomes, len(batch))
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # somebody else's code
            if _is_given_up():
                raise
            log.warning(
                "sink %s raised %s",
                self._sink.name,
                type(error).__name__,
                extra={"action": "sink_raised"},
            )
            return [_unheard(f"sink raised {type(error).__name__}")] * len(batch)
        if fault:
            log.error(fault, extra={"action": "sink_misanswered"})
            return [_unheard(fault)] * len(batch)
        return without_values(outcomes, batch)

    async def close(self) -> None:
        """Release the connections of the sink."""
        await self._sink.close()


def _is_given_up() -> bool:
    """Tell whether this delivery was cancelled: a sink may raise a cancellation of its own, too."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _unheard(reason: str) -> Outcome:
    return Outcome.retry(reason, arrival=Arrival.UNKNOWN)


def _fault(outcomes: Sequence[Outcome], count: int) -> str:
    """Return what is wrong with a sink's answer, or an empty text."""
    if len(outcomes) != count:
        return f"sink answered {len(outcomes)} outcomes for {count} pushes"
    for outcome in outcomes:
        if outcome is DELIVERED:
            continue
        if not (isinstance(outcome, Outcome) and isinstance(outcome.kind, Kind)):
            return f"sink answered a {type(outcome).__name__} that is no outcome"
        if not _is_text(outcome.reason):
            return f"sink answered a reason that is no valid text ({type(outcome.reason).__name__})"
        if not isinstance(outcome.after_s, int | float | None) or math.isnan(outcome.after_s or 0):
            return f"sink answered a wait that is no number ({type(outcome.after_s).__name__})"
        if not isinstance(outcome.scope, Scope | None):
            return f"sink answered a scope that is none ({type(outcome.scope).__name__})"
        if not isinstance(outcome.gone_at_ms, int):
            told = type(outcome.gone_at_ms).__name__
            return f"sink answered a time of death that is no whole number ({told})"
    return ""


def _is_text(reason: object) -> bool:
    """Tell whether it can be written down: a text may hold halves of characters."""
    if not isinstance(reason, str):
        return False
    try:
        return reason.isascii() or bool(reason.encode())
    except UnicodeEncodeError:
        return False
