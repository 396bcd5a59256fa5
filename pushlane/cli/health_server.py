"""A small HTTP server for what a process says of itself, on threads of its own.

So it answers while the event loop is stuck, and nothing that asks can hold up the process: a
connection lasts ten seconds at most, and of too many the oldest is closed. Metrics of several
origins are put together, so that each family is shown once.
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from prometheus_client import REGISTRY, CollectorRegistry, MetricsHandler
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from pushlane.core.errors import BadInput

log = logging.getLogger("pushlane.health")

METRICS = "/metrics"
_MOST_OPEN = 16
_MOST_SCRAPES = 2
_LONGEST_S = 10.0
_LOOK_EVERY_S = 0.1


@dataclass(frozen=True)
class HealthReply:
    """An answer to a request."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"

    @classmethod
    def of_lines(cls, status: int, *lines: str) -> HealthReply:
        """Return an answer of these lines of text."""
        return cls(status, "".join(f"{line}\n" for line in lines).encode())


Answer = Callable[[str, Mapping[str, str]], HealthReply]
"""Gives the reply to a path with the parameters of its query."""


@contextmanager
def served(answer: Answer, metrics: Collector, place: tuple[str, int] | Path) -> Iterator[Any]:
    """Serve on a host and port, or on a Unix socket of this path, inside the block: at its value.

    `metrics` are at `/metrics`, in the format that is asked for, and all else is for `answer`.

    Raises:
        BadInput: nothing can be served there; says why.
    """
    scrapes = threading.BoundedSemaphore(_MOST_SCRAPES)
    parts = {"registry": metrics, "answer": staticmethod(answer), "scrapes": scrapes}
    server = _opened(type("Handler", (_Handler,), parts), place)
    thread = threading.Thread(
        target=server.serve_forever, args=(_LOOK_EVERY_S,), name="health-server", daemon=True
    )
    thread.start()
    try:
        yield server.server_address
    finally:
        server.shutdown()
        server.server_close()


def _opened(handler: Any, place: tuple[str, int] | Path) -> _Server:
    try:
        if isinstance(place, Path):
            return _Server(socket.AF_UNIX, str(place), handler)
        found = socket.getaddrinfo(*place, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        return _Server(family, address, handler)
    except (OSError, UnicodeError) as error:
        shown = place if isinstance(place, Path) else f"{place[0]}:{place[1]}"
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise BadInput(
            f"metrics cannot be served on {shown}: {why}; "
            "give another --metrics-port or --metrics-host"
        ) from error


class _Server(ThreadingMixIn, TCPServer):
    """One thread a connection, and few connections."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = _MOST_OPEN

    def __init__(self, family: socket.AddressFamily, address: Any, handler: Any) -> None:
        self.address_family = family
        self._since_s: dict[Any, float] = {}
        self._lock = threading.Lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread of its own; of too many, cut off who is there for longest."""
        with self._lock:
            if len(self._since_s) >= _MOST_OPEN:
                self._cut_off(next(iter(self._since_s)))
            self._since_s[request] = time.monotonic()
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Cut off who takes too long; called several times a second."""
        with self._lock:
            late_s = time.monotonic() - _LONGEST_S
            for request in [one for one, since_s in self._since_s.items() if since_s < late_s]:
                self._cut_off(request)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._since_s.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what is ours; who asked may leave at any time."""
        error = sys.exception()
        if not isinstance(error, OSError):
            kind = type(error).__name__
            text = "a request for the metrics or the health of this process failed: %s"
            log.error(text, kind, extra={"action": "health_failed"})

    def _cut_off(self, request: Any) -> None:
        del self._since_s[request]
        with suppress(OSError):  # it has left by itself
            request.shutdown(socket.SHUT_RDWR)


class _Handler(MetricsHandler):
    """Answers one request. prometheus_client's own handler writes the metrics."""

    server_version = "pushlane"
    sys_version = ""
    timeout = _LONGEST_S
    answer: Answer
    scrapes: threading.BoundedSemaphore

    def do_GET(self) -> None:
        if urlsplit(self.path).path != METRICS:
            self._send(self._reply())
        elif self.scrapes.acquire(timeout=_LONGEST_S / 2):
            try:
                super().do_GET()
            finally:
                self.scrapes.release()
        else:
            self._send(HealthReply.of_lines(503, "too many scrapes at a time"))

    def do_HEAD(self) -> None:
        is_metrics = urlsplit(self.path).path == METRICS
        self._send(HealthReply(200, b"") if is_metrics else self._reply(), with_body=False)

    def _reply(self) -> HealthReply:
        url = urlsplit(self.path)
        return type(self).answer(url.path, dict(parse_qsl(url.query)))

    def _send(self, reply: HealthReply, *, with_body: bool = True) -> None:
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.content_type)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if with_body:
            self.wfile.write(reply.body)


_WITH_CREATED = ("counter", "histogram", "summary")


class ProcessMetrics(Collector):
    """All metrics of a process: ours, and those of the client's own registry.

    A processor registers its own there, and the client those of the process and of Python.
    """

    def __init__(self, ours: CollectorRegistry) -> None:
        self._ours = ours
        self._is_told = False

    def collect(self) -> Iterable[Metric]:
        return together([*self._ours.collect(), *self._others()])

    def _others(self) -> list[Metric]:
        try:
            return list(REGISTRY.collect())
        except Exception as error:  # noqa: BLE001 - a collector of a processor: ours are still shown
            if not self._is_told:
                self._is_told = True
                text = (
                    "a metric that another library has added cannot be read (%s), so none of "
                    "those is shown"
                )
                log.warning(text, type(error).__name__, extra={"action": "metrics_failed"})
            return []


def together(families: Iterable[Metric]) -> list[Metric]:
    """Return each family once, with the samples of all of its name, but not those of another type.

    Times of creation, which are a family of their own in the plain format, are left out as well.
    """
    found: dict[str, Metric] = {}
    for family in families:
        known = found.setdefault(family.name, family)
        if known is not family and known.type == family.type:
            known.samples.extend(family.samples)
    return [one for one in found.values() if not _is_created(one.name, found)]


def of_worker(worker: str, families: Iterable[Metric]) -> Iterator[Metric]:
    """Yield the families with the worker as a label of each sample."""
    for family in families:
        family.samples = [
            sample._replace(labels={**_exported(sample.labels), "worker": worker})
            for sample in family.samples
        ]
        yield family


def _exported(labels: dict[str, str]) -> dict[str, str]:
    """Return the labels with one `worker` of their own renamed, as Prometheus does."""
    return {("exported_worker" if key == "worker" else key): text for key, text in labels.items()}


def _is_created(name: str, found: dict[str, Metric]) -> bool:
    of = found.get(name.removesuffix("_created"))
    return name.endswith("_created") and of is not None and of.type in _WITH_CREATED
