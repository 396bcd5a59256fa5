"""Traces of pushes: what a sink is told before it is asked, and the spans when that has ended.

Spans are made of times that are kept anyway, with their start and their end: none is open while a
push is under way, so a process that dies leaves none open. OpenTelemetry is imported by `Tracing`
alone, and only where `trace_endpoint` is set.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from pushlane.core.endings import Ending
from pushlane.core.ports import Delivery
from pushlane.core.push import NO_SPAN, Kind, Push
from pushlane.core.task import MAX_ATTEMPTS, SteadyTime
from pushlane.dispatcher.tracing import conventions as names
from pushlane.dispatcher.tracing.conventions import SpanOperation
from pushlane.dispatcher.tracing.exporter import (
    EXPORT_TIMEOUT_S,
    THREAD,
    SpanExporter,
    SpanQueue,
)
from pushlane.dispatcher.tracing.own_spans import OwnSpan, own_spans
from pushlane.dispatcher.tracing.sampling import Sampler, span_id
from pushlane.settings import Settings
from pushlane.util.extras import needs_extra
from pushlane.util.texts import require_http_url, shown_url
from pushlane.util.trace_context import TraceContext
from pushlane.version import VERSION

_LOGGERS_OF_SDK = (
    "opentelemetry.exporter.otlp.common.http",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
)
_DEFAULT_PATH = "/v1/traces"
_NS_A_MS = 1_000_000
_FAILED = frozenset({Kind.RETRY, Kind.DEAD})


def _is_of_others(record: logging.LogRecord) -> bool:
    """Leave out what the SDK logs of our exports: it shows the URL, which may hold a token."""
    return record.threadName != THREAD


def _otlp_exporter(endpoint: str) -> SpanExporter:
    """Return what posts spans; headers and certificates are those of OTEL_EXPORTER_OTLP_*."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    for name in _LOGGERS_OF_SDK:
        logging.getLogger(name).addFilter(_is_of_others)
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
        self._failed = trace.Status(trace.StatusCode.ERROR)
        self._unset = trace.Status(trace.StatusCode.UNSET)
        self.sampler = Sampler(settings.trace_sample)
        self.queue = SpanQueue(made, shown_url(settings.trace_endpoint))

    def span(
        self,
        template: str,
        trace_id: int,
        operation: SpanOperation,
        kind: Any,
        own_id: int,
        parent_id: int,
        times_ms: tuple[int, int],
        attributes: Mapping[str, Any],
        *,
        is_remote: bool = False,
        failed: bool = False,
    ) -> Any:
        """Return a span from one Unix time in ms to another; a parent of 0 is none."""
        api, word = self.api, str(operation)
        parent = None
        if parent_id:
            parent = api.SpanContext(trace_id, parent_id, is_remote, self._sampled)
        start_ms, end_ms = times_ms
        return self._span(
            f"{word} {template}",
            api.SpanContext(trace_id, own_id, False, self._sampled),
            parent,
            self._resource,
            {names.OPERATION_NAME: word, names.OPERATION_TYPE: word, **attributes},
            kind=kind,
            status=self._failed if failed else self._unset,
            start_time=start_ms * _NS_A_MS,
            end_time=max(start_ms, end_ms) * _NS_A_MS,
            instrumentation_scope=self._scope,
        )

    def export_own(self, own: OwnSpan) -> None:
        """Export a span of a processor's own."""
        api, push = self.api, own.push
        told = {names.MESSAGE_ID: push.push_id, names.TASK: push.task_id}
        span = self._span(
            own.name,
            api.SpanContext(own.place.trace_id, own.place.span_id, False, self._sampled),
            api.SpanContext(own.parent.trace_id, own.parent.span_id, False, self._sampled),
            self._resource,
            {**told, names.ERROR_TYPE: own.error} if own.error else told,
            kind=api.SpanKind.INTERNAL,
            status=self._failed if own.error else self._unset,
            start_time=own.start_ns,
            end_time=own.end_ns,
            instrumentation_scope=self._scope,
        )
        self.queue.put([span])

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
        self._sampled = tracing.sampler.sampled
        self._sink = sink

    def mark(self, batch: Sequence[Delivery]) -> None:
        """Give sampled pushes that are about to go what their receiver continues from."""
        pushes = [delivery.push for delivery in batch]
        for row, context in self._sampled(pushes):
            own = span_id(context.trace_id, SpanOperation.SEND, pushes[row], self._sink)
            batch[row].traceparent = context._replace(span_id=own).traceparent

    def own_spans(self, batch: Sequence[Delivery]) -> AbstractContextManager[None]:
        """Let the code that gets these pushes, which are marked, have spans of its own."""
        if not any(delivery.traceparent for delivery in batch):
            return NO_SPAN
        return own_spans(self._tracing.export_own, batch)

    def ended(self, endings: Sequence[Ending], waits: Mapping[str, Sequence[int]]) -> None:
        """Export spans of those that are sampled; `waits` has a column for each cause, in ms."""
        sampled = self._sampled([ending.job.push for ending in endings])
        if not sampled:
            return
        queue = self._tracing.queue
        if queue.is_full:  # then they are counted, and not made
            queue.drop(sum(_count(endings[row]) for row, _ in sampled))
            return
        spans: list[Any] = []
        for row, context in sampled:
            spent = {cause: column[row] for cause, column in waits.items() if column[row]}
            spans += self._spans(endings[row], context, spent)
        queue.put(spans)

    def _spans(
        self, ending: Ending, caller: TraceContext, waits: Mapping[str, int]
    ) -> Iterator[Any]:
        job, push, kinds = ending.job, ending.job.push, self._tracing.api.SpanKind
        ended_ms, sent_ms = ending.at_ms or SteadyTime.now_ms(), job.dispatched_at_ms
        until_ms = sent_ms or ended_ms
        known = 0 < push.submitted_at_ms <= until_ms  # else of another clock
        submitted_ms = push.submitted_at_ms if known else until_ms
        failed = ending.outcome in _FAILED
        common = self._common(ending)
        of_attempt = {**common, names.SINK: self._sink, names.ATTEMPT: _attempt(push)}
        told = {names.OUTCOME: str(ending.outcome)}
        if failed:
            told[names.ERROR_TYPE] = ending.why or str(ending.outcome)
        waited = {**of_attempt, **({} if sent_ms else told)}
        waited |= {names.WAIT + cause: spent_ms for cause, spent_ms in waits.items()}
        trace_id = caller.trace_id
        create, receive, send = [span_id(trace_id, one, push, self._sink) for one in SpanOperation]
        span = partial(self._tracing.span, common[names.DESTINATION_TEMPLATE], trace_id)
        moment, waiting = (submitted_ms, submitted_ms), (submitted_ms, until_ms)
        if push.attempt <= 1:
            own = caller.span_id, moment, common
            yield span(SpanOperation.CREATE, kinds.PRODUCER, create, *own, is_remote=True)
        is_error = failed and not sent_ms
        own = create, waiting, waited
        yield span(SpanOperation.RECEIVE, kinds.CONSUMER, receive, *own, failed=is_error)
        if sent_ms:
            own = receive, (sent_ms, ended_ms), {**of_attempt, **told}
            yield span(SpanOperation.SEND, kinds.CLIENT, send, *own, failed=failed)

    def _common(self, ending: Ending) -> dict[str, Any]:
        push, task = ending.job.push, ending.job.task
        return {
            names.SYSTEM: names.SYSTEM_NAME,
            names.DESTINATION_TEMPLATE: names.destination_template(task.level),
            names.MESSAGE_ID: push.push_id,
            names.TASK: push.task_id,
            names.APP: task.app,
            names.LEVEL: str(task.level),
        }


def _attempt(push: Push) -> int:
    return min(push.attempt, MAX_ATTEMPTS)


def _count(ending: Ending) -> int:
    """Return how many spans an ending has."""
    return 1 + (ending.job.push.attempt <= 1) + bool(ending.job.dispatched_at_ms)
