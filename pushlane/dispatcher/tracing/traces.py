"""Traces of pushes: what a sink is told before it is asked, and the spans when that has ended.

Spans are made of times that are kept anyway, with their start and their end: none is open while a
push is under way, so a process that dies leaves none open. OpenTelemetry is imported when `Tracing`
is made, and only where `trace_endpoint` is set.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from urllib.parse import urlsplit

from pushlane.core.endings import Ending
from pushlane.core.ports import Delivery
from pushlane.core.push import NO_SPAN
from pushlane.dispatcher.tracing.conventions import SpanOperation
from pushlane.dispatcher.tracing.exporter import (
    EXPORT_TIMEOUT_S,
    THREAD,
    Pending,
    SpanExporter,
    SpanQueue,
)
from pushlane.dispatcher.tracing.own_spans import OwnSpan, own_spans
from pushlane.dispatcher.tracing.sampling import Sampler, attempt_id, span_id
from pushlane.dispatcher.tracing.spans import FAILED, Attempt, SpanMaker, span_count
from pushlane.model.waits import MEANT
from pushlane.settings import Settings
from pushlane.util.extras import needs_extra
from pushlane.util.texts import require_http_url, shown_url
from pushlane.util.trace_context import TraceContext

MOST_BESIDES = 100
"""The most pushes a second and process that are traced without being sampled."""

_LOGGERS_OF_SDK = (
    "opentelemetry.exporter.otlp.common.http",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
)
_DEFAULT_PATH = "/v1/traces"


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
            self.spans = SpanMaker(process)
            made = exporter or _otlp_exporter(_full(settings.trace_endpoint))
        self.sampler = Sampler(settings.trace_sample)
        self.besides = Besides(settings.trace_failures, settings.trace_slow_s)
        self.queue = SpanQueue(made, shown_url(settings.trace_endpoint))

    def export_own(self, own: OwnSpan) -> None:
        """Export a span of a processor's own."""
        self.queue.put([Pending(1, partial(self.spans.of_own, own))])

    async def close(self) -> None:
        """Export what waits; 2 s at most."""
        await asyncio.to_thread(self.queue.stop)


def _full(endpoint: str) -> str:
    """Return the URL that spans are posted to: a collector's alone has OTLP's own path."""
    return endpoint if urlsplit(endpoint).path.strip("/") else endpoint.rstrip("/") + _DEFAULT_PATH


class Besides:
    """Finds pushes to trace that are not sampled: those that failed, or were slow.

    A process takes so many a second at most: while a sink is away nearly all of them fail.
    """

    def __init__(
        self, failures: bool, slow_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._failures = failures
        self._slow_ms = slow_s * 1000
        self._second = 0
        self._left = 0

    def rows(self, endings: Sequence[Ending], waits: Mapping[str, Sequence[int]]) -> list[int]:
        """Return the places of those that failed, now or in an attempt before, and of slow ones."""
        rows: list[int] = []
        if self._failures:
            rows = [
                row
                for row, ending in enumerate(endings)
                if ending.outcome in FAILED or ending.job.push.attempt > 1
            ]
        if self._slow_ms:
            rows = sorted({*rows, *self._slow(endings, waits)})
        return rows and self._within_bound(rows)

    def _slow(self, endings: Sequence[Ending], waits: Mapping[str, Sequence[int]]) -> Iterator[int]:
        """Return those whose wait, but for what they were to wait, and sink took too long."""
        columns = [column for cause, column in waits.items() if cause not in MEANT]
        for row, ending in enumerate(endings):
            sent_ms = ending.job.dispatched_at_ms
            at_sink_ms = max(0, ending.at_ms - sent_ms) if sent_ms else 0
            if at_sink_ms + sum([column[row] for column in columns]) > self._slow_ms:
                yield row

    def _within_bound(self, rows: list[int]) -> list[int]:
        second = int(self._clock())
        if second != self._second:
            self._second, self._left = second, MOST_BESIDES
        found = rows[: self._left]
        self._left -= len(found)
        return found


class LineTraces:
    """The traces of the pushes that go to one sink."""

    def __init__(self, tracing: Tracing, sink: str) -> None:
        self._tracing = tracing
        self._sampler = tracing.sampler
        self._sink = sink

    def mark(self, batch: Sequence[Delivery]) -> None:
        """Give sampled pushes that are about to go what their receiver continues from."""
        pushes = [delivery.push for delivery in batch]
        for row, context in self._sampler.sampled(pushes):
            push = pushes[row]
            of_attempt = attempt_id(push, self._sink)
            own = span_id(context.trace_id, SpanOperation.SEND, push.push_id, of_attempt)
            batch[row].traceparent = context._replace(span_id=own).traceparent

    def own_spans(self, batch: Sequence[Delivery]) -> AbstractContextManager[None]:
        """Let the code that gets these pushes, which are marked, have spans of its own."""
        if not any(delivery.traceparent for delivery in batch):
            return NO_SPAN
        return own_spans(self._tracing.export_own, batch)

    def ended(self, endings: Sequence[Ending], waits: Mapping[str, Sequence[int]]) -> None:
        """Have spans exported of those that are sampled, failed or slow.

        `waits` has a column for each cause, in ms.
        """
        traced = dict(self._sampler.sampled([ending.job.push for ending in endings]))
        for row in self._tracing.besides.rows(endings, waits):
            if row not in traced:
                traced[row] = self._sampler.context(endings[row].job.push)
        if traced:
            self._tracing.queue.put(self._pending(endings, traced, waits))

    def _pending(
        self,
        endings: Sequence[Ending],
        traced: Mapping[int, TraceContext],
        waits: Mapping[str, Sequence[int]],
    ) -> Iterator[Pending]:
        """Yield what makes the spans of the endings at these places.

        While the queue is full it is something empty, which counts as dropped: nothing is made for
        spans that have no room.
        """
        queue, make = self._tracing.queue, self._tracing.spans.of
        for row, context in traced.items():
            ending = endings[row]
            spans = span_count(ending)
            if queue.room < spans:
                yield Pending(spans, tuple)
                continue
            of_it = {cause: column[row] for cause, column in waits.items() if column[row]}
            attempt = Attempt.of(ending, self._sink, context, of_it)
            yield Pending(spans, partial(make, attempt))
