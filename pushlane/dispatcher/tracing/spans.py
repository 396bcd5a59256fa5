"""What a span is made of: kept when an attempt ends, and made into spans when they are exported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from pushlane.core.endings import Ending
from pushlane.core.push import Kind
from pushlane.core.task import MAX_ATTEMPTS, SteadyTime
from pushlane.dispatcher.tracing import conventions as names
from pushlane.dispatcher.tracing.conventions import SpanOperation
from pushlane.dispatcher.tracing.own_spans import OwnSpan
from pushlane.dispatcher.tracing.sampling import attempt_id, span_id
from pushlane.util.trace_context import TraceContext, read_traceparent
from pushlane.util.tracestate import read_tracestate
from pushlane.version import VERSION

FAILED = frozenset({Kind.RETRY, Kind.DEAD})
_NS_A_MS = 1_000_000


class Attempt(NamedTuple):
    """An attempt that has ended, at a sink or without one; times are Unix ms, 0 for none.

    It holds nothing of the push but ids, so that no content waits with it. `waits` says by cause
    where the wait went, in ms; `submit` is the place of its task's submit in a trace, as a text.
    """

    trace: TraceContext
    tracestate: str
    push_id: str
    attempt_id: str
    task_id: str
    app: str
    level: str
    sink: str
    number: int
    submitted_ms: int
    sent_ms: int
    ended_ms: int
    outcome: Kind | None
    why: str
    waits: Mapping[str, int]
    submit: str = ""

    @classmethod
    def of(
        cls, ending: Ending, sink: str, trace: TraceContext, waits: Mapping[str, int]
    ) -> Attempt:
        """Return what an ending leaves for its spans."""
        job, push, task = ending.job, ending.job.push, ending.job.task
        ended_ms = ending.at_ms or SteadyTime.now_ms()
        until_ms = job.dispatched_at_ms or ended_ms
        is_known = 0 < push.submitted_at_ms <= until_ms  # else of another clock
        return cls(
            trace,
            read_tracestate(push.tracestate) if push.tracestate and trace.span_id else "",
            push.push_id,
            attempt_id(push, sink),
            push.task_id,
            task.app,
            task.level,
            sink,
            min(push.attempt, MAX_ATTEMPTS),
            push.submitted_at_ms if is_known else until_ms,
            job.dispatched_at_ms,
            ended_ms,
            ending.outcome,
            ending.why,
            waits,
            task.traceparent,
        )


def span_count(ending: Ending) -> int:
    """Return how many spans an attempt has that ended so."""
    return 1 + (ending.job.push.attempt <= 1) + bool(ending.job.dispatched_at_ms)


class SpanMaker:
    """Makes spans for the exporter, with start and end; `process` is what says of all who made it.

    It needs the packages of OpenTelemetry (ImportError).
    """

    def __init__(self, process: str) -> None:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        own = {
            "service.name": "pushlane",
            "service.version": VERSION,
            "service.instance.id": process,
        }
        self._api: Any = trace
        self._span = ReadableSpan
        self._resource = Resource(own).merge(OTELResourceDetector().detect())
        self._scope = InstrumentationScope("pushlane", VERSION, names.SCHEMA_URL)
        self._sampled = trace.TraceFlags(trace.TraceFlags.SAMPLED)
        self._failed = trace.Status(trace.StatusCode.ERROR)
        self._unset = trace.Status(trace.StatusCode.UNSET)

    def of(self, one: Attempt) -> Iterator[Any]:
        """Make the spans of an attempt: `create` before the first, `receive`, `send` if it went."""
        kinds, trace_id = self._api.SpanKind, one.trace.trace_id
        create, receive, send = (
            span_id(trace_id, operation, one.push_id, one.attempt_id) for operation in SpanOperation
        )
        common: dict[str, Any] = {
            names.SYSTEM: names.SYSTEM_NAME,
            names.DESTINATION_TEMPLATE: names.destination_template(one.level),
            names.MESSAGE_ID: one.push_id,
            names.TASK: one.task_id,
            names.APP: one.app,
            names.LEVEL: str(one.level),
        }
        failed = one.outcome in FAILED
        told = {names.OUTCOME: str(one.outcome)}
        if failed:
            told[names.ERROR_TYPE] = one.why or str(one.outcome)
        of_attempt = {**common, names.SINK: one.sink, names.ATTEMPT: one.number}
        waited = {**of_attempt, **({} if one.sent_ms else told)}
        waited |= {names.WAIT + cause: spent_ms for cause, spent_ms in one.waits.items()}
        state, began_ms = self._state(one.tracestate), one.submitted_ms
        span = partial(self.span, trace_id, state=state)
        if one.number <= 1:
            own = create, one.trace.span_id, (began_ms, began_ms), common
            link = read_traceparent(one.submit)
            yield span(SpanOperation.CREATE, kinds.PRODUCER, *own, is_remote=True, link=link)
        own = receive, create, (began_ms, one.sent_ms or one.ended_ms), waited
        is_error = failed and not one.sent_ms
        yield span(SpanOperation.RECEIVE, kinds.CONSUMER, *own, failed=is_error)
        if one.sent_ms:
            own = send, receive, (one.sent_ms, one.ended_ms), {**of_attempt, **told}
            yield span(SpanOperation.SEND, kinds.CLIENT, *own, failed=failed)

    def of_own(self, own: OwnSpan) -> Iterator[Any]:
        """Make the span of a processor's own."""
        api, state = self._api, self._state(own.tracestate)
        told = {names.MESSAGE_ID: own.push_id, names.TASK: own.task_id}
        yield self._span(
            own.name,
            api.SpanContext(own.place.trace_id, own.place.span_id, False, self._sampled, state),
            api.SpanContext(own.parent.trace_id, own.parent.span_id, False, self._sampled, state),
            self._resource,
            {**told, names.ERROR_TYPE: own.error} if own.error else told,
            kind=api.SpanKind.INTERNAL,
            status=self._failed if own.error else self._unset,
            start_time=own.start_ns,
            end_time=own.end_ns,
            instrumentation_scope=self._scope,
        )

    def _state(self, tracestate: str) -> Any:
        return self._api.TraceState.from_header([tracestate]) if tracestate else None

    def span(
        self,
        trace_id: int,
        operation: SpanOperation,
        kind: Any,
        own_id: int,
        parent_id: int,
        times_ms: tuple[int, int],
        attributes: Mapping[str, Any],
        *,
        state: Any = None,
        is_remote: bool = False,
        failed: bool = False,
        link: TraceContext | None = None,
    ) -> Any:
        """Return a span from one Unix time in ms to another; a parent of 0 is none."""
        api, word = self._api, str(operation)
        parent = None
        if parent_id:
            parent = api.SpanContext(trace_id, parent_id, is_remote, self._sampled, state)
        start_ms, end_ms = times_ms
        return self._span(
            f"{word} {attributes[names.DESTINATION_TEMPLATE]}",
            api.SpanContext(trace_id, own_id, False, self._sampled, state),
            parent,
            self._resource,
            {names.OPERATION_NAME: word, names.OPERATION_TYPE: word, **attributes},
            links=() if link is None else (self._link(link),),
            kind=kind,
            status=self._failed if failed else self._unset,
            start_time=start_ms * _NS_A_MS,
            end_time=max(start_ms, end_ms) * _NS_A_MS,
            instrumentation_scope=self._scope,
        )

    def _link(self, to: TraceContext) -> Any:
        flags = self._api.TraceFlags(to.is_sampled)
        return self._api.Link(self._api.SpanContext(to.trace_id, to.span_id, True, flags))
