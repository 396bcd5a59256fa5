"""Traces of pushes: what a sink is told before it is asked, and the spans when that has ended.

Spans are made of times that are kept anyway, with their start and their end: none is open while a
push is under way, so a process that dies leaves none open. OpenTelemetry is imported by `Tracing`
alone, and only where `trace_endpoint` is set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any
from urllib.parse import urlsplit

from pushlane.core.endings import Ending
from pushlane.core.ports import Delivery
from pushlane.core.push import Kind, Push
from pushlane.core.task import MAX_ATTEMPTS, steady_ms
from pushlane.dispatcher.tracing import conventions as names
from pushlane.dispatcher.tracing.conventions import SpanOperation
from pushlane.dispatcher.tracing.exporter import EXPORT_TIMEOUT_S, SpanExporter, SpanQueue
from pushlane.dispatcher.tracing.sampling import Sampler, span_id
from pushlane.settings import Settings
from pushlane.util.extras import needs_extra
from pushlane.util.texts import require_http_url
from pushlane.util.trace_context import TraceContext
from pushlane.version import VERSION

_DEFAULT_PATH = "/v1/traces"
_NS_A_MS = 1_000_000
_FAILED = frozenset({Kind.RETRY, Kind.DEAD})
_trace_id_of = attrgetter("job.push.trace_id")


def _otlp_exporter(endpoint: str) -> SpanExporter:
    """Return what posts spans; headers and certificates are those of OTEL_EXPORTER_OTLP_*."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    exporter: SpanExporter = OTLPSpanExporter(endpoint=endpoint, timeout=EXPORT_TIMEOUT_S)
    return exporter


class Tracing:
    """All that a process has of traces.

    Raises BadInput when `trace_endpoint` cannot be, or a package is missing.
    """

    def __init__(
        self, settings: Settings, process: str, exporter: SpanExporter | None = None
    ) -> None:
        require_http_url(
            settings.trace_endpoint,
            "trace_endpoint is not a URL like http://127.0.0.1:4318/v1/traces",
        )
        with needs_extra("otel", "trace_endpoint"):
            from opentelemetry import trace
            from opentelemetry.sdk.resources import OTELResourceDetector, Resource
            from opentelemetry.sdk.trace import ReadableSpan
            from opentelemetry.sdk.util.instrumentation import InstrumentationScope

            made = exporter or _otlp_exporter(_full(settings.trace_endpoint))
        own = {
            "service.name": "pushlane",
            "service.version": VERSION,
            "service.instance.id": process,
        }
        self.api: Any = trace
        self._span = ReadableSpan
        self._resource = Resource(own).merge(OTELResourceDetector().detect())
        self._scope = InstrumentationScope("pushlane", VERSION, names.SCHEMA_URL)
        self._sampled = trace.TraceFlags(trace.TraceFlags.SAMPLED)
        self.sampler = Sampler(settings.trace_sample)
        self.queue = SpanQueue(made)

    def span(
        self,
        name: str,
        kind: Any,
        at: TraceContext,
        parent_id: int,
        times_ms: tuple[int, int],
        attributes: Mapping[str, Any],
        *,
        is_remote: bool = False,
        failed: bool = False,
    ) -> Any:
        """Return a span from one Unix time in ms to another; a parent of 0 is none."""
        api = self.api
        context = api.SpanContext(at.trace_id, at.span_id, False, self._sampled)
        parent = None
        if parent_id:
            parent = api.SpanContext(at.trace_id, parent_id, is_remote, self._sampled)
        start_ms, end_ms = times_ms
        return self._span(
            name,
            context,
            parent,
            self._resource,
            attributes,
            kind=kind,
            status=api.Status(api.StatusCode.ERROR if failed else api.StatusCode.UNSET),
            start_time=start_ms * _NS_A_MS,
            end_time=max(start_ms, end_ms) * _NS_A_MS,
            instrumentation_scope=self._scope,
        )

    async def close(self) -> None:
        """Export what waits; 2 s at most."""
        await asyncio.to_thread(self.queue.stop)


def _full(endpoint: str) -> str:
    """Return the URL that spans are posted to: a collector's alone has OTLP's own path."""
    return endpoint if urlsplit(endpoint).path.strip("/") else endpoint.rstrip("/") + _DEFAULT_PATH


class LineTraces:
    """The traces of the pushes that go to one sink."""

    def __init__(self, tracing: Tracing, sink: str) -> None:
        self._tracing = tracing
        self._context = tracing.sampler.context
        self._sink = sink

    def mark(self, batch: Sequence[Delivery]) -> None:
        """Give sampled pushes that are about to go what their receiver continues from."""
        for delivery in batch:
            push = delivery.push
            if (context := self._context(push)) is not None:
                own = span_id(context.trace_id, SpanOperation.SEND, push, self._sink)
                delivery.traceparent = context._replace(span_id=own).traceparent

    def ended(self, endings: Sequence[Ending], waits: Mapping[str, Sequence[int]]) -> None:
        """Export spans of those that are sampled; `waits` has a column for each cause, in ms."""
        spans: list[Any] = []
        if self._tracing.sampler.is_off and not any(map(_trace_id_of, endings)):
            return
        for row, ending in enumerate(endings):
            if (context := self._context(ending.job.push)) is not None:
                spent = {cause: column[row] for cause, column in waits.items() if column[row]}
                spans += self._spans(ending, context, spent)
        if spans:
            self._tracing.queue.put(spans)

    def _spans(
        self, ending: Ending, caller: TraceContext, waits: Mapping[str, int]
    ) -> Iterator[Any]:
        job, push, kinds = ending.job, ending.job.push, self._tracing.api.SpanKind
        ended_ms, sent_ms = ending.at_ms or steady_ms(), job.dispatched_at_ms
        until_ms = sent_ms or ended_ms
        known = (
            0 < push.submitted_at_ms <= until_ms
        )  # else of another clock
        submitted_ms = push.submitted_at_ms if known else until_ms
        failed = ending.outcome in _FAILED
        waited = {names.WAIT + cause: spent_ms for cause, spent_ms in waits.items()}
        told = {names.OUTCOME: str(ending.outcome)}
        if failed:
            told[names.ERROR_TYPE] = ending.why or str(ending.outcome)
        span = partial(self._span, ending, caller.trace_id)
        if push.attempt <= 1:
            times_ms = submitted_ms, submitted_ms
            yield span(SpanOperation.CREATE, kinds.PRODUCER, caller.span_id, times_ms, {})
        create_id = self._id(caller.trace_id, SpanOperation.CREATE, push)
        times_ms = submitted_ms, until_ms
        if not sent_ms:
            told_too = {**waited, **told}
            yield span(
                SpanOperation.RECEIVE, kinds.CONSUMER, create_id, times_ms, told_too, failed=failed
            )
            return
        yield span(SpanOperation.RECEIVE, kinds.CONSUMER, create_id, times_ms, waited)
        receive_id = self._id(caller.trace_id, SpanOperation.RECEIVE, push)
        times_ms = sent_ms, ended_ms
        yield span(SpanOperation.SEND, kinds.CLIENT, receive_id, times_ms, told, failed=failed)

    def _id(self, trace_id: int, what: SpanOperation, push: Push) -> int:
        return span_id(trace_id, what, push, self._sink)

    def _span(
        self,
        ending: Ending,
        trace_id: int,
        what: SpanOperation,
        kind: Any,
        parent_id: int,
        times_ms: tuple[int, int],
        attributes: Mapping[str, Any],
        *,
        failed: bool = False,
    ) -> Any:
        push, task = ending.job.push, ending.job.task
        template = names.destination_template(task.level)
        common: dict[str, Any] = {
            names.OPERATION_NAME: str(what),
            names.OPERATION_TYPE: str(what),
            names.SYSTEM: names.SYSTEM_NAME,
            names.DESTINATION_TEMPLATE: template,
            names.MESSAGE_ID: push.push_id,
            names.TASK: push.task_id,
            names.APP: task.app,
            names.LEVEL: str(task.level),
        }
        if what is not SpanOperation.CREATE:
            common |= {names.SINK: self._sink, names.ATTEMPT: min(push.attempt, MAX_ATTEMPTS)}
        at = TraceContext(trace_id, self._id(trace_id, what, push), True)
        return self._tracing.span(
            f"{what} {template}",
            kind,
            at,
            parent_id,
            times_ms,
            {**common, **attributes},
            is_remote=what is SpanOperation.CREATE,
            failed=failed,
        )
