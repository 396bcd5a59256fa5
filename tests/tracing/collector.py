"""A collector for tests: it takes spans by OTLP over HTTP, and keeps them as what they say."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Told:
    """A span as a collector gets it; ids are hexadecimal, `parent` is empty for a root.

    `links` has the ids of a trace and of a span in it, for each.
    """

    name: str
    trace_id: str
    span_id: str
    parent: str
    start_ns: int
    end_ns: int
    is_error: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]
    links: list[tuple[str, str]]


@dataclass
class Collector:
    url: str = ""
    spans: list[Told] = field(default_factory=list)

    def named(self, operation: str) -> list[Told]:
        return [span for span in self.spans if span.name.startswith(f"{operation} ")]


def told(body: bytes) -> Iterator[Told]:
    """Yield the spans in the body of an export."""
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Told(
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    span.status.code == span.status.STATUS_CODE_ERROR,
                    _values(span.attributes),
                    _values(resource.resource.attributes),
                    [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
                )


def _values(pairs: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in pairs}


@contextmanager
def collecting(status: int = 200) -> Iterator[Collector]:
    """Run a collector on loopback that answers each export with this status."""
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.spans += told(body)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.url = f"http://127.0.0.1:{server.server_address[1]}/v1/traces"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
