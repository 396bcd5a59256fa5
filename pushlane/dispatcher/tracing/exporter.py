"""Brings spans to a collector in a thread of its own. Nothing waits for it but a stop, 2 s at most.

The queue is bounded: spans that find no place, that the collector did not take or that a stop left
are dropped and counted. What waits is not spans yet but what makes them, in that thread: those that
are dropped are never made. The thread begins with the first, so there is none before a fork.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

log = logging.getLogger("pushlane.tracing")

MOST_WAITING = 4_096
MOST_AT_ONCE = 256  # to encode them takes 10 ms or so, in which the loop may have to wait
EXPORT_EVERY_S = 1.0
EXPORT_TIMEOUT_S = 5.0
STOP_S = 2.0
THREAD = "pushlane-spans"


class SpanExporter(Protocol):
    """What brings spans away: the SDK's, over HTTP."""

    def export(self, spans: Sequence[Any]) -> Any:
        """Return a member named SUCCESS or FAILURE."""

    def shutdown(self) -> None:
        """Give up what is under way."""


class Pending(NamedTuple):
    """Spans that are not made yet: how many, and what makes them, in another thread."""

    spans: int
    make: Callable[[], Iterable[Any]]


class SpanQueue:
    """Spans on their way to a collector; `dropped` counts those that never came there.

    `where` is what logs call it.
    """

    def __init__(
        self, exporter: SpanExporter, where: str = "the collector", most: int = MOST_WAITING
    ) -> None:
        self._exporter = exporter
        self._where = where
        self._most = most
        self._waiting: deque[Pending] = deque()
        self._spans = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._under_way = 0
        self._stops = False
        self._has_told = False
        self.dropped = 0

    @property
    def room(self) -> int:
        """Return how many spans it takes now."""
        return 0 if self._stops else max(0, self._most - self._spans)

    def put(self, pending: Iterable[Pending]) -> None:
        """Take what makes spans, as far as there is room; it waits for nothing."""
        with self._changed:
            for one in pending:
                if one.spans > self.room:
                    self.dropped += one.spans
                    continue
                self._waiting.append(one)
                self._spans += one.spans
            if self._thread is None and self._waiting:
                self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
                self._thread.start()
            if self._spans >= MOST_AT_ONCE:
                self._changed.notify()

    def stop(self, within_s: float = STOP_S) -> None:
        """Export what waits as far as the time allows; the rest is dropped. Once is enough."""
        with self._changed:
            self._stops = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(within_s)
        with self._changed:
            self.dropped += self._spans + self._under_way
            self._waiting.clear()
            self._spans = self._under_way = 0
        self._exporter.shutdown()
        if self.dropped:
            log.warning(
                "%d spans never came to %s: traces lack them",
                self.dropped,
                self._where,
                extra={"action": "spans_dropped"},
            )

    def _run(self) -> None:
        while pending := self._next():
            is_taken = self._exported(pending)
            with self._changed:
                self.dropped += 0 if is_taken else self._under_way
                self._under_way = 0

    def _next(self) -> list[Pending]:
        """Wait for some; none are left when it is empty."""
        with self._changed:
            while not self._stops and self._spans < MOST_AT_ONCE:
                if not self._changed.wait(EXPORT_EVERY_S) and self._spans:
                    break
            found = []
            while self._waiting and self._under_way < MOST_AT_ONCE:
                found.append(self._waiting.popleft())
                self._under_way += found[-1].spans
            self._spans -= self._under_way
            return found

    def _exported(self, pending: Sequence[Pending]) -> bool:
        try:
            spans = [span for one in pending for span in one.make()]
            is_taken: bool = self._exporter.export(spans).name == "SUCCESS"
        except Exception as error:  # noqa: BLE001 - a collector's fault is no fault of ours
            log.debug("an export raised %s", type(error).__name__)
            is_taken = False
        if is_taken:
            self._has_told = False
        elif not self._has_told and not self._stops:
            self._has_told = True
            log.warning(
                "spans are dropped, and pushes go on: %s does not take them; check that it runs "
                "and takes OTLP over HTTP",
                self._where,
                extra={"action": "spans_dropped"},
            )
        return is_taken
