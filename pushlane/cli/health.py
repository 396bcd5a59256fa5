"""The health of a long-running command: whether its loop turns, what it misses, its metrics.

Served with `--metrics-port`, from what the process knows: nobody who looks makes it ask a service.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from pushlane.backends.contact import SILENT_S
from pushlane.cli.flags import option
from pushlane.core.errors import BadInput
from pushlane.settings import Settings

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.registry import Collector

    from pushlane.cli.health_server import HealthReply
    from pushlane.util.metrics import ReadMetric

SourceT = TypeVar("SourceT")
STUCK_S = 30.0
"""An event loop that has not turned for longer does not come back by itself."""

_HUNG_S = 60.0
_BEAT_EVERY_S = 1.0
_OVER_TIMEOUT_S = 10.0
_LIVE, _READY, _METRICS = "/livez", "/readyz", "/metrics"
_IS_READY = "ready"

Problems = Callable[[], Sequence[str]]


def stuck_after_s(settings: Settings, sinks: Sequence[str] = ()) -> float:
    """Return after how long without a turn a loop counts as stuck.

    A processor that blocks the loop for as long as its sink may take is slow, and not stuck.
    """
    longest_s = max((settings.of_sink(name).sink_timeout_s for name in sinks), default=0.0)
    return max(STUCK_S, longest_s + _OVER_TIMEOUT_S)


def loop_patience_s(settings: Settings, stuck_after_s: float = STUCK_S) -> float | None:
    """Return after how long without a turn of its loop a command ends itself, None for never.

    Unless it is set, that is no sooner than `/livez` calls the loop stuck.
    """
    given = settings.loop_patience_s
    if given is None:
        return max(_HUNG_S, stuck_after_s)
    return None if given == "off" else given


class Health:
    """What a process says of itself. Read by the server's threads, written by the process.

    `missing` says what keeps it from its work, a line for each, `remarks` what is the matter and
    keeps it from nothing, and `stuck` what only a restart mends; `ask_others` may know paths that
    this process does not. `registry` holds the metrics of the process, None when nobody can read
    them. `last_beat_s` is when the loop last turned, None while it does not run, and `loop_thread`
    the thread that it runs on.
    """

    def __init__(
        self,
        stuck_after_s: float,
        registry: CollectorRegistry | None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.registry = registry
        self.missing: Problems = lambda: ["starting"]
        self.remarks: Problems = list
        self.stuck: Problems = list
        self.ask_others: Callable[[str, Mapping[str, str]], HealthReply | None] = lambda *_: None
        self._stuck_after_s = stuck_after_s
        self._clock_s = clock_s
        self.last_beat_s: float | None = None
        self.loop_thread: int | None = None
        self._paths: dict[str, Callable[[Mapping[str, str]], HealthReply]] = {
            _LIVE: lambda _: _verdict([*self._hung(self._stuck_after_s), *self.stuck()], ["ok"]),
            _READY: lambda _: _verdict(
                self._hung(SILENT_S) or self.missing(), [_IS_READY, *self.remarks()]
            ),
        }

    def add_path(self, path: str, answer: Callable[[Mapping[str, str]], HealthReply]) -> None:
        """Serve one more path. `answer` gets its parameters, and is called on another thread."""
        self._paths[path] = answer

    def show(
        self, metrics: Sequence[ReadMetric[SourceT]], source: SourceT, settings: Settings
    ) -> None:
        """Show these metrics of this source, and those of every process."""
        from pushlane.backends.process_metrics import folders_in_use, process_collector
        from pushlane.util.metrics import MetricCollector

        if self.registry is not None:
            self.registry.register(MetricCollector(metrics, lambda: [(source, ())]))
            self.registry.register(process_collector(folders_in_use(settings)))

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        """Note that the event loop turns, for as long as the block lasts."""
        task = asyncio.create_task(self.beat(), name="health")
        try:
            yield
        finally:
            task.cancel()

    async def beat(self) -> None:
        """Note every second that the event loop turns, until it is cancelled."""
        self.loop_thread = threading.get_ident()
        try:
            while True:
                self.last_beat_s = self._clock_s()
                await asyncio.sleep(_BEAT_EVERY_S)
        finally:
            self.last_beat_s = None  # what comes after the loop is not judged

    def answer(self, path: str, query: Mapping[str, str]) -> HealthReply:
        """Return the reply to a request."""
        from pushlane.cli.health_server import HealthReply

        if path in self._paths:
            return self._paths[path](query)
        found = self.ask_others(path, query)
        known = ", ".join([*self._paths, _METRICS])
        return found or HealthReply.of_lines(404, f"there is no {path[:80]}; there are {known}")

    def _hung(self, longer_than_s: float) -> list[str]:
        """Say it if the loop has not turned for longer; before its first turn it is not judged."""
        beat_s = self.last_beat_s
        still_s = 0.0 if beat_s is None else self._clock_s() - beat_s
        return (
            [f"event loop: has not turned for {still_s:.0f} s"] if still_s > longer_than_s else []
        )


def _verdict(problems: Sequence[str], well: Sequence[str]) -> HealthReply:
    from pushlane.cli.health_server import HealthReply

    return HealthReply.of_lines(503, *problems) if problems else HealthReply.of_lines(200, *well)


@dataclass(frozen=True, kw_only=True)
class HealthFlags:
    """The options that say where a command serves its health and metrics."""

    metrics_port: Annotated[
        int | None,
        option("PORT", "Serve /livez, /readyz and /metrics on this port.", min=1, max=65535),
    ] = None
    metrics_host: Annotated[
        str | None, option("HOST", "Address to serve them on.", show_default="127.0.0.1")
    ] = None
    metrics_socket: Annotated[Path | None, typer.Option(hidden=True)] = None

    @contextmanager
    def serving(
        self, stuck_after_s: float = STUCK_S, metrics: Collector | None = None
    ) -> Iterator[Health]:
        """Serve inside the block, if at all.

        `metrics` are those of the process itself unless given.

        Raises:
            BadInput: nothing can be served there.
        """
        place = self._place()
        if place is None:
            yield Health(stuck_after_s, None)
            return
        from prometheus_client import CollectorRegistry

        from pushlane.cli.health_server import ProcessMetrics, served

        registry = CollectorRegistry()
        health = Health(stuck_after_s, registry)
        with served(health.answer, metrics or ProcessMetrics(registry), place):
            yield health

    def _place(self) -> tuple[str, int] | Path | None:
        if self.metrics_port is not None:
            return self.metrics_host or "127.0.0.1", self.metrics_port
        if self.metrics_host is not None:
            raise BadInput(
                f"--metrics-host {self.metrics_host} says where, but not at which port health and "
                "metrics are served; give --metrics-port, too"
            )
        return self.metrics_socket
