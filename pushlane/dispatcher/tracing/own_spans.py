"""Spans of a processor's own, by `with push.span("render")`: below the `send` of this attempt.

They have the name that the processor gives, and of the push its id and its task, nothing else.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import NamedTuple

from pushlane.core.ports import Delivery
from pushlane.core.push import NO_SPAN, SPANS, Push
from pushlane.core.task import SteadyTime
from pushlane.util.trace_context import TraceContext, current_in_opentelemetry, read_traceparent
from pushlane.util.tracestate import kept_tracestate

_NS_A_MS = 1_000_000
_ID_BITS = 64


class OwnSpan(NamedTuple):
    """A span that has ended. `error` is the type of what was raised in it, empty for nothing."""

    push_id: str
    task_id: str
    name: str
    tracestate: str
    place: TraceContext
    parent: TraceContext
    start_ns: int
    end_ns: int
    error: str


class OwnSpans:
    """Makes spans of pushes, and gives each to `export` when it has ended.

    `parents` has by task id and seq the place in its trace where each sampled push is now.
    """

    def __init__(
        self, export: Callable[[OwnSpan], None], parents: Mapping[tuple[str, int], TraceContext]
    ) -> None:
        self._export = export
        self._parents = parents

    def __call__(self, push: Push, name: str) -> AbstractContextManager[None]:
        """Return a span of this push, to be entered; one that is not sampled has none."""
        parent = self._parents.get((push.task_id, push.seq))
        return NO_SPAN if parent is None else self._span(push, name, parent)

    @contextmanager
    def _span(self, push: Push, name: str, parent: TraceContext) -> Iterator[None]:
        place = parent._replace(span_id=random.getrandbits(_ID_BITS) or 1)
        within = OwnSpans(self._export, {**self._parents, (push.task_id, push.seq): place})
        tracestate = kept_tracestate(push.trace_id, push.tracestate)
        token = SPANS.set(within)
        error = ""
        began_ns = time.monotonic_ns()
        try:
            with current_in_opentelemetry(place, tracestate):
                yield
        except BaseException as raised:
            error = type(raised).__name__  # what it says may be of the recipient
            raise
        finally:
            took_ns = time.monotonic_ns() - began_ns
            with suppress(ValueError):  # it was entered in another context
                SPANS.reset(token)
            start_ns = int(SteadyTime.tie_ms * _NS_A_MS) + began_ns
            times = start_ns, start_ns + took_ns
            self._export(
                OwnSpan(
                    push.push_id, push.task_id, str(name), tracestate, place, parent, *times, error
                )
            )


@contextmanager
def own_spans(export: Callable[[OwnSpan], None], batch: Sequence[Delivery]) -> Iterator[None]:
    """Let somebody's own code have spans of those pushes of a batch that are sampled."""
    parents = {
        (delivery.push.task_id, delivery.push.seq): place
        for delivery in batch
        if (place := read_traceparent(delivery.traceparent)) is not None
    }
    token = SPANS.set(OwnSpans(export, parents))
    try:
        yield
    finally:
        SPANS.reset(token)
