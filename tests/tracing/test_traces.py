"""What a dispatcher does with traces, and that it does nothing while they are off."""

from __future__ import annotations

import logging
import subprocess
import sys
from functools import partial

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from prometheus_client import CollectorRegistry

from pushlane.backends.backend import connect
from pushlane.core.endings import Ending
from pushlane.core.errors import BadInput
from pushlane.core.lane import Job
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Kind, Outcome, Push
from pushlane.core.task import Level, now_ms
from pushlane.dispatcher import Dispatcher
from pushlane.dispatcher.tracing import exporter, traces
from pushlane.settings import Settings
from pushlane.util import trace_context
from tests.core.support import MemorySink, add_task
from tests.tracing.conftest import URL, Kept


async def drained(settings: Settings, sink: MemorySink, count: int = 10) -> str:
    async with connect(settings) as backend:
        task = await add_task(backend, Level.HIGH, count)
        await Dispatcher(backend, sink, settings, drain=True).run()
    return task.id


@pytest.mark.parametrize("receipts", ["on", "off"])
async def test_all_are_traced_at_a_rate_of_one(
    settings: Settings, kept: Kept, receipts: str
) -> None:
    sink = MemorySink()
    traced = settings.but(trace_endpoint=URL, trace_sample=1.0, receipts=receipts)
    await drained(traced, sink)
    told = {delivery.traceparent for delivery in sink.received}
    sent = [span for span in kept.spans if span.name == "send high/{task}"]

    assert len(kept.spans) == 30
    assert told == {f"00-{s.context.trace_id:032x}-{s.context.span_id:016x}-01" for s in sent}
    assert len({span.context.trace_id for span in kept.spans}) == 10
    [root] = {span.name for span in kept.spans if span.parent is None}
    assert root == "create high/{task}"


@pytest.mark.parametrize("flag", [0, 1])
async def test_pushes_of_a_submit_have_traces_of_their_own_which_link_to_it(
    settings: Settings, kept: Kept, flag: int
) -> None:
    traced = settings.but(trace_endpoint=URL, trace_sample=1.0)
    async with connect(traced) as backend:
        await add_task(backend, Level.HIGH, 5, traceparent=f"00-{9:032x}-{7:016x}-0{flag}")
        await Dispatcher(backend, MemorySink(), traced, drain=True).run()
    linked = [span for span in kept.spans if span.links]

    assert len({span.context.trace_id for span in kept.spans} - {9}) == 5
    assert {(span.name, span.parent) for span in linked} == {("create high/{task}", None)}
    assert len(linked) == 5
    for span in linked:
        [link] = span.links
        assert (link.context.trace_id, link.context.span_id) == (9, 7)
        assert (link.context.trace_flags, link.context.is_remote) == (flag, True)
    assert encode_spans(kept.spans).ByteSize()


async def test_none_is_traced_at_a_rate_of_zero(settings: Settings, kept: Kept) -> None:
    sink = MemorySink()
    await drained(settings.but(trace_endpoint=URL), sink)

    assert kept.spans == []
    assert {delivery.traceparent for delivery in sink.received} == {""}


async def test_a_push_that_fails_is_traced_though_it_is_not_sampled_and_so_are_its_retries(
    settings: Settings, kept: Kept
) -> None:
    def answer(delivery: Delivery) -> Outcome:
        fails = delivery.push.seq == 3 and delivery.push.attempt == 1
        return Outcome.retry("busy", after_s=0.0) if fails else DELIVERED

    sink = MemorySink(answer)
    task_id = await drained(settings.but(trace_endpoint=URL), sink)
    ids = {span.attributes["messaging.message.id"] for span in kept.spans}
    sent = [span for span in kept.spans if span.name.startswith("send ")]

    assert ids == {f"{task_id}-3"}
    assert [span.attributes["pushlane.outcome"] for span in sent] == ["retry", "delivered"]
    assert len({span.context.trace_id for span in kept.spans}) == 1
    assert {delivery.traceparent for delivery in sink.received} == {""}  # it was not known yet


async def test_failures_are_not_traced_where_that_is_off(settings: Settings, kept: Kept) -> None:
    sink = MemorySink(lambda delivery: Outcome.dead("no such device"))
    await drained(settings.but(trace_endpoint=URL, trace_failures=False), sink)

    assert kept.spans == []


def test_so_many_failures_a_second_are_traced() -> None:
    now_s = [5.0]
    besides = traces.Besides(True, 0.0, clock=lambda: now_s[0])
    job = Job(None, None, 0, Push("t", 1, "r"))  # type: ignore[arg-type]
    endings = [Ending(job, Kind.DEAD, Kind.DEAD)] * 60

    assert [len(besides.rows(endings, {})) for _ in range(3)] == [60, 40, 0]
    now_s[0] = 6.5
    assert len(besides.rows(endings, {})) == 60


def test_slow_pushes_are_found_by_what_nobody_asked_for() -> None:
    def ended(sent_ms: int, ended_ms: int) -> Ending:
        job = Job(None, None, 0, Push("t", 1, "r"), dispatched_at_ms=sent_ms)  # type: ignore[arg-type]
        return Ending(job, Kind.DELIVERED, Kind.DELIVERED, at_ms=ended_ms)

    endings = [ended(100, 101), ended(100, 1_101), ended(100, 601), ended(0, 5_000)]
    waits = {"share": [0, 0, 500, 1_000], "quiet": [9_999, 0, 0, 0], "slot": [0, 0, 0, 1]}

    assert traces.Besides(True, 1.0).rows(endings, waits) == [1, 2, 3]
    assert traces.Besides(True, 0.0).rows(endings, waits) == []
    assert traces.Besides(False, 1.0).rows(endings, {}) == [1]


async def test_a_push_that_expired_waited_and_was_not_sent(settings: Settings, kept: Kept) -> None:
    traced = settings.but(trace_endpoint=URL, trace_sample=1.0)
    async with connect(traced) as backend:
        await add_task(backend, Level.HIGH, 1, push_expires_at_ms=now_ms() - 1)
        await Dispatcher(backend, MemorySink(), traced, drain=True).run()
    created, received = kept.spans

    assert (created.name, received.name) == ("create high/{task}", "receive high/{task}")
    assert received.attributes["pushlane.outcome"] == "expired"


async def test_a_push_that_dies_has_an_error_and_no_reason(settings: Settings, kept: Kept) -> None:
    sink = MemorySink(lambda delivery: Outcome.dead("no such device"))
    await drained(settings.but(trace_endpoint=URL, trace_sample=1.0), sink, 1)
    [sent] = [span for span in kept.spans if span.name.startswith("send ")]

    assert sent.status.status_code is trace.StatusCode.ERROR
    assert sent.status.description is None
    assert sent.attributes["pushlane.outcome"] == "dead"


async def test_a_collector_that_is_not_there_is_told_without_its_token(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    token = "T0kenOfSixteenOrMore"
    traced = settings.but(trace_endpoint=f"http://127.0.0.1:9/{token}/v1", trace_sample=1.0)
    with caplog.at_level(logging.INFO):
        await drained(traced, MemorySink(), 1)
    told = [record.getMessage() for record in caplog.records]

    assert [text for text in told if "3 spans never came to http://127.0.0.1:9/" in text]
    assert not [text for text in told if token in text]


def test_without_the_extra_it_is_named(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(BadInput, match=r"opentelemetry-sdk.*pushlane\[otel\]"):
        traces.Tracing(settings.but(trace_endpoint=URL), "p")


def test_an_endpoint_that_is_no_url_is_refused_at_the_start(settings: Settings) -> None:
    with pytest.raises(BadInput, match="trace_endpoint"):
        traces.Tracing(settings.but(trace_endpoint="collector"), "p")


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("http://c:4318", "http://c:4318/v1/traces"),
        ("http://c:4318/", "http://c:4318/v1/traces"),
        ("http://c/otlp/v1/traces", "http://c/otlp/v1/traces"),
    ],
)
def test_a_collectors_url_alone_has_the_path_of_otlp(given: str, full: str) -> None:
    assert traces._full(given) == full


def test_opentelemetry_is_not_loaded_while_traces_are_off() -> None:
    code = (
        "import sys, pushlane, pushlane.dispatcher.tracing.traces\n"
        "from pushlane.util.trace_context import callers_traceparent\n"
        "assert callers_traceparent() == ''\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_callers_context_is_that_of_the_current_span() -> None:
    context = trace.SpanContext(5, 6, False, trace.TraceFlags(1))
    with trace.use_span(trace.NonRecordingSpan(context)):
        assert trace_context.callers_traceparent() == f"00-{5:032x}-{6:016x}-01"
    assert trace_context.callers_traceparent() == ""


async def test_what_a_foreign_writer_says_of_times_harms_no_span(
    settings: Settings, kept: Kept
) -> None:
    strange = [-1, 0, 2**62]
    traced = settings.but(trace_endpoint=URL, trace_sample=1.0)
    async with connect(traced) as backend:
        task = await add_task(backend, Level.HIGH, 0)
        pushes = [
            Push(task.id, seq, "r", submitted_at_ms=at, attempt=2**40)
            for seq, at in enumerate(strange, 1)
        ]
        ending = [
            Ending(Job(None, None, 0, push, task=task), Kind.DELIVERED, Kind.DELIVERED)  # type: ignore[arg-type]
            for push in pushes
        ]
    tracing = traces.Tracing(traced, "p")
    traces.LineTraces(tracing, "default").ended(ending, {})
    await tracing.close()

    assert len(kept.spans) == 3
    assert all(0 < span.start_time == span.end_time < 2**62 for span in kept.spans)
    assert encode_spans(kept.spans).ByteSize()


async def test_spans_without_a_place_are_counted_as_they_would_have_been(
    settings: Settings, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "SpanQueue", partial(exporter.SpanQueue, most=0))
    registry = CollectorRegistry()
    traced = settings.but(trace_endpoint=URL, trace_sample=1.0)
    async with connect(traced) as backend:
        await add_task(backend, Level.HIGH, 10)
        await Dispatcher(backend, MemorySink(), traced, drain=True, registry=registry).run()

    assert kept.spans == []
    assert registry.get_sample_value("pushlane_spans_dropped_total") == 30
