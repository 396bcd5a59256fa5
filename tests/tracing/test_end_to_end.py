"""One order from the shop's request to its receiver, over a retry that another process sends."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import NonRecordingSpan, SpanContext, Tracer, TraceState, use_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from pushlane import Client, SubmitRequest
from pushlane.producers.producer import Producer
from pushlane.settings import Settings
from tests.processes import Pushlane, until
from tests.served import served
from tests.tracing.collector import Collector, Told, collecting

SECRETS = ("somebody@example.com", "Your order", "4711")
RETRY_AFTER_S = 2


def tracer(collector: Collector, service: str) -> Tracer:
    """A service's own tracer, as anybody's is."""
    provider = TracerProvider(resource=Resource({"service.name": service}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=collector.url)))
    return provider.get_tracer(service)


class Phone:
    """A receiver that goes on in the trace; it refuses the first attempt."""

    def __init__(self) -> None:
        self.url = ""
        self.attempts: list[int] = []
        self.tracestates: list[str | None] = []


@contextmanager
def phone(collector: Collector) -> Iterator[Phone]:
    found, own = Phone(), tracer(collector, "phone")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            push = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            context = TraceContextTextMapPropagator().extract(
                {name.lower(): text for name, text in self.headers.items()}
            )
            with own.start_as_current_span(f"show {push['attempt']}", context):
                found.attempts.append(push["attempt"])
                found.tracestates.append(self.headers["tracestate"])
            is_first = push["attempt"] == 1
            self.send_response(500 if is_first else 200)
            if is_first:
                self.send_header("Retry-After", str(RETRY_AFTER_S))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_address[1]}/show"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def with_state(context: SpanContext) -> SpanContext:
    """The same place, with what a tracer tells the next one."""
    place = context.trace_id, context.span_id, False, context.trace_flags
    return SpanContext(*place, TraceState([("shop", "1")]))


def only(spans: list[Told], attempt: int) -> Told:
    [found] = [one for one in spans if one.attributes["pushlane.attempt"] == attempt]
    return found


def test_an_order_is_followed_from_the_shop_to_the_phone(pushlane: Pushlane) -> None:
    with collecting() as collector, phone(collector) as receiver:
        settings = Settings(**{**pushlane.settings, "pool_lanes": 1})
        with tracer(collector, "shop").start_as_current_span("checkout") as checkout:
            order = checkout.get_span_context()
            with (
                use_span(NonRecordingSpan(with_state(order))),
                Producer("orders", level="high", settings=settings) as producer,
            ):
                push_id = producer.push(SECRETS[0], title=SECRETS[1], data={"order": SECRETS[2]})
        (pushlane.folder / "pushlane.toml").write_text(f'trace_endpoint = "{collector.url}"')
        flags = ("--sink", f"webhook:{receiver.url}")
        first = pushlane.dispatch(*flags)
        until(lambda: len(collector.named("send")) == 1)
        assert first.stop() == 0
        pushlane.dispatch("--drain", *flags).wait()

    assert receiver.attempts == [1, 2]
    assert receiver.tracestates == ["shop=1", "shop=1"]
    ours = [one for one in collector.spans if one.resource["service.name"] == "pushlane"]
    assert {one.trace_id for one in collector.spans} == {f"{order.trace_id:032x}"}
    [created] = collector.named("create")
    assert created.parent == f"{order.span_id:016x}"
    for attempt in (1, 2):
        received = only(collector.named("receive"), attempt)
        sent = only(collector.named("send"), attempt)
        [shown] = [one for one in collector.spans if one.name == f"show {attempt}"]
        assert (received.parent, sent.parent) == (created.span_id, received.span_id)
        assert shown.parent == sent.span_id
        assert sent.is_error == (attempt == 1)
        waits = [v for k, v in received.attributes.items() if k.startswith("pushlane.wait.")]
        assert sum(waits) * 1_000_000 == received.end_ns - received.start_ns
        assert sent.attributes["messaging.message.id"] == push_id
        assert sent.attributes["messaging.destination.template"] == "high/{task}"
    processes = {one.resource["service.instance.id"] for one in ours}
    assert len(processes) == 2
    assert not [text for text in SECRETS if text in repr(ours)]


def test_pushes_of_a_submit_lead_back_to_the_campaign(pushlane: Pushlane) -> None:
    with collecting() as collector, phone(collector) as receiver:
        token = pushlane.folder / "token"
        with served(Settings(**pushlane.settings), token) as url:
            away = Settings(url=url, token_file=token, data_dir=pushlane.folder / "nothing")
            with (
                tracer(collector, "shop").start_as_current_span("campaign") as campaign,
                Client.sync(away) as client,
            ):
                rows = [{"recipient": f"{SECRETS[0]}-{n}"} for n in (1, 2)]
                client.submit(SubmitRequest(source=rows, level="high", title=SECRETS[1]))
        lines = f'trace_endpoint = "{collector.url}"\ntrace_sample = 1.0'
        (pushlane.folder / "pushlane.toml").write_text(lines)
        flags = ("--sink", f"webhook:{receiver.url}")
        first = pushlane.dispatch(*flags)
        until(lambda: len(collector.named("send")) == 2)
        assert first.stop() == 0
        pushlane.dispatch("--drain", *flags).wait()

    place = campaign.get_span_context()
    created = collector.named("create")
    link = (f"{place.trace_id:032x}", f"{place.span_id:016x}")
    assert [(one.parent, one.links) for one in created] == [("", [link]), ("", [link])]
    assert len({one.trace_id for one in created} - {link[0]}) == 2
    sends = {(one.trace_id, one.span_id): one for one in collector.named("send")}
    shown = [one for one in collector.spans if one.name.startswith("show ")]
    assert sorted(one.name for one in shown) == ["show 1", "show 1", "show 2", "show 2"]
    for one in shown:
        attempt = sends.pop((one.trace_id, one.parent)).attributes["pushlane.attempt"]
        assert one.name == f"show {attempt}"
    assert not [text for text in SECRETS if text in repr(collector.spans)]
