"""Whether a push is sampled, in which trace, and the ids of its spans: every process decides alike.

A push that came with a `traceparent` is in that trace, and sampled if its caller's is. Any other
begins a trace of its own, whose id follows from its task and seq, and is sampled by a rate on that
id. Ids of spans are computed, so that what a sink was told before the span exists is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from operator import attrgetter

from pushlane.core.push import Push
from pushlane.dispatcher.tracing.conventions import SpanOperation
from pushlane.util.trace_context import TraceContext, read_traceparent

_LOW = 2**64 - 1
_STEP = 0x9E3779B97F4A7C15  # seqs in a row are spread evenly by it, so a rate holds in each task
_DECIDE = 2**30 - 1  # the bits of an id that the rate is of: few, as small numbers are quick
_STEP_OF_THESE = _STEP & _DECIDE
_MOST_TASKS = 4_096

_trace_id_of = attrgetter("trace_id")
_task_id_of = attrgetter("task_id")
_seq_of = attrgetter("seq")


class Sampler:
    """Samples pushes without a `traceparent` at a rate from 0 to 1."""

    def __init__(self, rate: float) -> None:
        self._below = int(rate * (_DECIDE + 1))
        self._of_task: dict[str, tuple[int, int]] = {}

    def context(self, push: Push) -> TraceContext | None:
        """Return where the trace of a sampled push begins, None for any other.

        Its span is the caller's; 0 when there is none.
        """
        if push.trace_id and (given := read_traceparent(push.trace_id)) is not None:
            return given if given.is_sampled else None
        if not self._below:
            return None
        high, base = self._of_task.get(push.task_id) or self._keep(push.task_id)
        low = (base + push.seq * _STEP) & _LOW
        is_sampled = low & _DECIDE < self._below
        return TraceContext(high << 64 | low, 0, True) if is_sampled else None

    def sampled(self, pushes: Sequence[Push]) -> list[tuple[int, TraceContext]]:
        """Return the places and contexts of those of these that are sampled.

        Nearly always they are of one task and none is: that is found with little work for each.
        """
        rows: Iterable[int] = range(len(pushes))
        if not any(map(_trace_id_of, pushes)):
            if not self._below:
                return []
            if len(set(map(_task_id_of, pushes))) == 1:
                rows = self._rows(pushes)
        found = [(row, self.context(pushes[row])) for row in rows]
        return [(row, context) for row, context in found if context is not None]

    def _rows(self, pushes: Sequence[Push]) -> list[int]:
        """Return which pushes of one task are sampled, none of which has a `traceparent`."""
        task_id, below = pushes[0].task_id, self._below
        base = (self._of_task.get(task_id) or self._keep(task_id))[1] & _DECIDE
        return [
            row
            for row, seq in enumerate(map(_seq_of, pushes))
            if (base + seq * _STEP_OF_THESE) & _DECIDE < below
        ]

    def _keep(self, task_id: str) -> tuple[int, int]:
        if len(self._of_task) >= _MOST_TASKS:
            self._of_task.clear()
        digest = blake2b(task_id.encode(), digest_size=16).digest()
        pair = int.from_bytes(digest[:8], "big") or 1, int.from_bytes(digest[8:], "big")
        self._of_task[task_id] = pair
        return pair


def span_id(trace_id: int, operation: SpanOperation, push: Push, sink: str) -> int:
    """Return the id of a span of a push, the same in all processes.

    An attempt that cost none is told from the one before by when it was due. `create` is of no
    attempt and no sink.
    """
    of_attempt = ""
    if operation is not SpanOperation.CREATE:
        of_attempt = f"{push.attempt}:{push.due_at_ms}:{sink}"
    text = f"{push.push_id}:{operation}:{of_attempt}"
    digest = blake2b(text.encode(), digest_size=8, key=trace_id.to_bytes(16, "big")).digest()
    return int.from_bytes(digest, "big") or 1
