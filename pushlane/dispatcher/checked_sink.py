"""A sink whose answers can be relied on: an outcome for each push, and nothing raised.

A sink may be somebody else's code. What it answers wrongly counts as not heard of, and what pushes
hold is taken out of its reasons, before anybody sees them.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

from pushlane.core.ports import Delivery, PostingSink, Sink
from pushlane.core.push import DELIVERED, NO_SPAN, Arrival, Kind, Outcome, Scope
from pushlane.dispatcher.stats import without_values
from pushlane.dispatcher.tracing.traces import LineTraces
from pushlane.util.log_ids import ids_of_one

log = logging.getLogger("pushlane.checked_sink")

Answered: TypeAlias = Callable[[Any, Outcome], None]


class CheckedSink:
    """A sink, in all but its faults: one that fails as a whole means a retry of each push."""

    name: str
    hosts_code: bool
    # Asked for each batch, and by far quicker so than by __getattr__.
    batch_size: int = property(lambda self: self._sink.batch_size)  # type: ignore[assignment]
    mixes_tasks: bool = property(lambda self: self._sink.mixes_tasks)  # type: ignore[assignment]

    def __init__(self, sink: Sink, traces: LineTraces | None = None) -> None:
        self._sink = sink
        self._traces = traces

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)  # what it says of itself, which may change

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        """Return the sink's outcomes, or retries. Raises nothing but a cancellation of ours."""
        own_spans = NO_SPAN
        if self._traces is not None:
            self._traces.mark(batch)
            if self._sink.hosts_code:
                own_spans = self._traces.own_spans(batch)
        try:
            with own_spans:
                return _checked(await self._sink.deliver(batch), batch)
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # somebody else's code
            if _is_given_up():
                raise
            return [self._raised(error, batch)] * len(batch)

    @property
    def can_post(self) -> bool:
        """Tell whether the sink takes single pushes with a callback, and runs nobody's code."""
        sink = self._sink
        return not sink.hosts_code and sink.batch_size == 1 and getattr(sink, "can_post", False)

    def post(self, delivery: Delivery, answered: Answered, token: Any) -> bool:
        """Have the sink post a push. One that raises may have sent it: it is not heard of."""
        if self._traces is not None:
            self._traces.mark((delivery,))
        try:
            went = cast(PostingSink, self._sink).post(
                delivery, self._heard, (answered, token, delivery)
            )
        except Exception as error:  # noqa: BLE001 - as of `deliver`
            unheard = self._raised(error, [delivery])
            asyncio.get_running_loop().call_soon(answered, token, unheard)
            return True
        return bool(went)

    def _heard(self, token: tuple[Answered, Any, Delivery], outcome: Outcome) -> None:
        answered, asked, delivery = token
        if outcome is not DELIVERED:
            try:
                [outcome] = _checked([outcome], [delivery])
            except Exception as error:  # noqa: BLE001 - else the push would never land
                outcome = self._raised(error, [delivery])
        answered(asked, outcome)

    def _raised(self, error: BaseException, batch: Sequence[Delivery]) -> Outcome:
        log.warning(
            "sink %s raised %s",
            self._sink.name,
            type(error).__name__,
            extra={"action": "sink_raised", **ids_of_one(batch)},
        )
        return _unheard(f"sink raised {type(error).__name__}")

    async def close(self) -> None:
        """Release the connections of the sink."""
        await self._sink.close()


def _is_given_up() -> bool:
    """Tell whether this delivery was cancelled: a sink may raise a cancellation of its own, too."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _checked(outcomes: Sequence[Outcome], batch: Sequence[Delivery]) -> Sequence[Outcome]:
    """Return the outcomes without values of pushes, or that a sink's wrong answer is not heard."""
    if fault := _fault(outcomes, len(batch)):
        log.error(fault, extra={"action": "sink_misanswered", **ids_of_one(batch)})
        return [_unheard(fault)] * len(batch)
    return without_values(outcomes, batch)


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
            return f"sink answered a {type(outcome).__name__} that is not an outcome"
        if not _is_text(outcome.reason):
            return (
                f"sink answered a reason that is not a valid text ({type(outcome.reason).__name__})"
            )
        if not isinstance(outcome.after_s, int | float | None) or math.isnan(outcome.after_s or 0):
            return f"sink answered a wait that is not a number ({type(outcome.after_s).__name__})"
        if not isinstance(outcome.scope, Scope | None):
            return f"sink answered an unknown scope ({type(outcome.scope).__name__})"
        if not isinstance(outcome.gone_at_ms, int):
            told = type(outcome.gone_at_ms).__name__
            return f"sink answered a time of death that is not a whole number ({told})"
    return ""


def _is_text(reason: object) -> bool:
    """Tell whether it can be written down: a text may hold halves of characters."""
    if not isinstance(reason, str):
        return False
    try:
        return reason.isascii() or bool(reason.encode())
    except UnicodeEncodeError:
        return False
