"""Brings spans to a collector in a thread of its own. Nothing waits for it but a stop, 2 s at most.

The queue is bounded: spans that find no place, that the collector did not take or that a stop left
are dropped and counted. The thread begins with the first span, so there is none before a fork.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

log = logging.getLogger("pushlane.tracing")

MOST_WAITING = 4_096
MOST_AT_ONCE = 512
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
        self._spans: deque[Any] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._under_way = 0
        self._stops = False
        self._has_told = False
        self.dropped = 0

    @property
    def is_full(self) -> bool:
        """Tell whether it takes no more now."""
        return self._stops or len(self._spans) >= self._most

    def drop(self, count: int) -> None:
        """Count spans that there is no room for."""
        with self._changed:
            self.dropped += count

    def put(self, spans: Sequence[Any]) -> None:
        """Take spans, as many as there is room for; it waits for nothing."""
        with self._changed:
            room = 0 if self._stops else max(0, self._most - len(self._spans))
            self._spans.extend(spans[:room])
            self.dropped += max(0, len(spans) - room)
            if self._thread is None and not self._stops:
                self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
                self._thread.start()
            if len(self._spans) >= MOST_AT_ONCE:
                self._changed.notify()

    def stop(self, within_s: float = STOP_S) -> None:
        """Export what waits as far as the time allows; the rest is dropped. Once is enough."""
        with self._changed:
            self._stops = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(within_s)
        with self._changed:
            self.dropped += len(self._spans) + self._under_way
            self._spans.clear()
            self._under_way = 0
        self._exporter.shutdown()
        if self.dropped:
            log.warning(
                "%d spans never came to %s: traces lack them",
                self.dropped,
                self._where,
                extra={"action": "spans_dropped"},
            )

    def _run(self) -> None:
        while spans := self._next():
            is_taken = self._exported(spans)
            with self._changed:
                self.dropped += 0 if is_taken else self._under_way
                self._under_way = 0

    def _next(self) -> list[Any]:
        """Wait for spans; none are left when it is empty."""
        with self._changed:
            while not self._stops and len(self._spans) < MOST_AT_ONCE:
                if not self._changed.wait(EXPORT_EVERY_S) and self._spans:
                    break
            count = min(MOST_AT_ONCE, len(self._spans))
            self._under_way = count
            return [self._spans.popleft() for _ in range(count)]

    def _exported(self, spans: Sequence[Any]) -> bool:
        try:
            is_taken: bool = self._exporter.export(spans).name == "SUCCESS"
        except Exception as error:  # noqa: BLE001 - a collector's fault is no fault of ours
            log.debug("an export raised %s", type(error).__name__)
            is_taken = False
        if is_taken:
            self._has_told = False
        elif not self._has_told and not self._stops:
            self._has_told = True
            log.warning(
                "spans are dropped, and pushes go on: %s does not take them; see that it is there "
                "and takes OTLP over HTTP",
                self._where,
                extra={"action": "spans_dropped"},
            )
        return is_taken
