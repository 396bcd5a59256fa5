"""Whether a push is sampled, in which trace, and the ids of its spans: every process decides alike.

A push that came with a `traceparent` is in that trace, and sampled if its caller's is. Any other
begins a trace of its own, whose id follows from its task and seq, and is sampled by a rate on that
id. Ids of spans are computed, so that what a sink was told before the span exists is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from pushlane.core.push import Push
from pushlane.dispatcher.tracing.conventions import SpanOperation
from pushlane.util.trace_context import TraceContext, read_traceparent

_LOW = 2**64 - 1
_STEP = 0x9E3779B97F4A7C15  # seqs in a row are spread evenly by it, so a rate holds in each task
_DECIDE = 2**30 - 1  # the bits of an id that the rate is of: few, as small numbers are quick
_STEP_OF_THESE = _STEP & _DECIDE
_MOST_TASKS = 4_096


class Sampler:
    """Samples pushes without a `traceparent` at a rate from 0 to 1."""

    def __init__(self, rate: float) -> None:
        self._below = int(rate * (_DECIDE + 1))
        self._of_task: dict[str, tuple[int, int]] = {}

    def context(self, push: Push) -> TraceContext:
        """Return where the trace of a push begins, with whether it is sampled.

        Its span is the caller's; 0 when there is none.
        """
        if push.trace_id and (given := read_traceparent(push.trace_id)) is not None:
            return given
        high, base = self._of_task.get(push.task_id) or self._keep(push.task_id)
        low = (base + push.seq * _STEP) & _LOW
        return TraceContext(high << 64 | low, 0, low & _DECIDE < self._below)

    def sampled(self, pushes: Sequence[Push]) -> list[tuple[int, TraceContext]]:
        """Return the places and contexts of those of these that are sampled.

        Nearly always they are of one task and none is: that is found with little work for each.
        """
        rows: Sequence[int] = range(len(pushes))
        if not self._below:
            rows = [row for row, push in enumerate(pushes) if push.trace_id]
        elif len({push.task_id for push in pushes}) == 1 < len(pushes):
            task_id, below = pushes[0].task_id, self._below
            base = (self._of_task.get(task_id) or self._keep(task_id))[1] & _DECIDE
            rows = [
                row
                for row, push in enumerate(pushes)
                if push.trace_id or (base + push.seq * _STEP_OF_THESE) & _DECIDE < below
            ]
        found = [(row, self.context(pushes[row])) for row in rows]
        return [(row, context) for row, context in found if context.is_sampled]

    def _keep(self, task_id: str) -> tuple[int, int]:
        if len(self._of_task) >= _MOST_TASKS:
            self._of_task.clear()
        digest = blake2b(task_id.encode(), digest_size=16).digest()
        pair = int.from_bytes(digest[:8], "big") or 1, int.from_bytes(digest[8:], "big")
        self._of_task[task_id] = pair
        return pair


def span_id(trace_id: int, operation: SpanOperation, push_id: str, of_attempt: str) -> int:
    """Return the id of a span of a push, the same in all processes.

    `create` is of no attempt.
    """
    of_it = "" if operation is SpanOperation.CREATE else of_attempt
    text = f"{push_id}:{operation}:{of_it}"
    digest = blake2b(text.encode(), digest_size=8, key=trace_id.to_bytes(16, "big")).digest()
    return int.from_bytes(digest, "big") or 1


def attempt_id(push: Push, sink: str) -> str:
    """Return what tells an attempt from any other of its push.

    One that cost none is told from the one before by when it was due.
    """
    return f"{push.attempt}:{push.due_at_ms}:{sink}"
