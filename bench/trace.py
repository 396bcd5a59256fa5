"""Waits and traces cost something: each is switched on and off many times in one run.

One task on one lane, all written before its dispatcher starts, which runs in this process with a
sink that does nothing and receipts. Each run compares the windows with it and those without.
Beside the rate there is the processor time a push, which a busy machine disturbs less. Bytes are of
receipts as they are appended, before any compression; memory is what one lane keeps once its
samples are full.
"""

from __future__ import annotations

import argparse
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from statistics import median
from typing import Any, cast
from unittest import mock

import uvloop
from msgspec.structs import replace

from bench.backends import anew, backend_settings
from bench.backlog import push_of, write_task
from bench.figures import Figure, at_most
from bench.switched import Cost, cost, windows
from pushlane.backends.backend import Backend, connect
from pushlane.core.lane import Job, Lane
from pushlane.core.ports import Delivery
from pushlane.core.push import Outcome, Push
from pushlane.core.task import Level, now_ms
from pushlane.dispatcher import Dispatcher, checked_sink, line
from pushlane.dispatcher.checked_sink import CheckedSink
from pushlane.dispatcher.lane_times import LaneTimes, LineTimes
from pushlane.dispatcher.receipts import Receipts
from pushlane.dispatcher.sinks import open_sink
from pushlane.dispatcher.tracing.exporter import THREAD
from pushlane.dispatcher.tracing.traces import Tracing
from pushlane.dispatcher.waits import Waits
from pushlane.model.waits import Cause
from pushlane.settings import Settings

SAMPLED = 0.01
RUNS = (("--broker", "embedded"),)
_OF_BYTES = 20_000
_STATES = (None, Cause.FEED, Cause.DURABLE, Cause.PAUSED, Cause.LIMIT)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="embedded")
    parser.add_argument("--pushes", type=int, default=400_000, help="dispatched in each run")
    parser.add_argument("--pairs", type=int, default=10, help="runs, of which the median counts")


class _Switched(Waits):
    """Keeps and tells where waits went while it is on."""

    is_on = True

    def note(self, cause: Cause | None) -> None:
        if _Switched.is_on:
            super().note(cause)

    def watch(self, jobs: Sequence[Job], changed: Iterable[Lane]) -> None:
        if _Switched.is_on:
            super().watch(jobs, changed)

    def columns(self, *of_pushes: Any) -> dict[str, list[int]]:
        return super().columns(*of_pushes) if _Switched.is_on else {}


async def _bare_deliver(self: CheckedSink, batch: Sequence[Delivery]) -> Sequence[Outcome]:
    """Deliver without a look whether anything is traced."""
    return checked_sink._checked(await self._sink.deliver(batch), batch)


_DELIVER, _TELL = CheckedSink.deliver, Receipts._tell


def _switch_waits(dispatcher: Dispatcher, is_on: bool) -> None:
    _Switched.is_on = is_on


def _switch_off(dispatcher: Dispatcher, is_on: bool) -> None:
    """Have the code of traces there, with no trace_endpoint, or not at all."""
    CheckedSink.deliver = _DELIVER if is_on else _bare_deliver  # type: ignore[method-assign]
    Receipts._tell = _TELL if is_on else Receipts._count_waits  # type: ignore[method-assign]


def _switch_sampled(dispatcher: Dispatcher, is_on: bool) -> None:
    for one in dispatcher._lines:
        traces = one.traces if is_on else None
        one.receipts._traces = traces
        cast(CheckedSink, one.slots._sink)._traces = traces


SWITCHES: Mapping[str, Callable[[Dispatcher, bool], None]] = {
    "waits": _switch_waits,
    "off": _switch_off,
    "sampled": _switch_sampled,
}


def run(options: argparse.Namespace) -> dict[str, Any]:
    result: dict[str, Any] = {"broker": options.broker, "pairs": options.pairs}
    with backend_settings(options.broker) as settings, _hanging() as endpoint:
        for name in SWITCHES:
            costs = [
                uvloop.run(_cost(name, _settings(name, settings, endpoint), options.pushes))
                for _ in range(options.pairs + 1)
            ][1:]  # the first warms up
            result |= _costs(name, costs)
            if name == "waits":
                result["rate_per_s"] = round(median(one.rate for one in costs))
                result["cpu_us"] = round(median(one.cpu_us for one in costs), 2)
        bytes_of = [
            uvloop.run(_receipt_bytes(anew(settings), is_told=is_told)) for is_told in (False, True)
        ]
    result["receipt_bytes"] = round((bytes_of[1] - bytes_of[0]) / _OF_BYTES, 1)
    return result | {"lane_bytes": _lane_bytes()}


def _costs(name: str, costs: Sequence[Cost]) -> dict[str, Any]:
    """The part of the rate and of the processor time a push that it costs, with their spread."""
    rate, cpu = [one.of_rate for one in costs], [one.of_cpu for one in costs]
    return {
        f"{name}_cost": round(median(rate), 4),
        f"{name}_cost_spread": [round(min(rate), 4), round(max(rate), 4)],
        f"{name}_cpu_cost": round(median(cpu), 4),
        f"{name}_cpu_spread": [round(min(cpu), 4), round(max(cpu), 4)],
    }


@contextmanager
def _hanging() -> Iterator[str]:
    """A collector that takes connections and never answers: its URL."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1/traces"


def _settings(name: str, settings: Settings, endpoint: str) -> Settings:
    found = anew(settings)
    if name != "sampled":
        return found
    return found.but(trace_endpoint=endpoint, trace_sample=SAMPLED)


@contextmanager
def _switchable() -> Iterator[None]:
    """Have dispatchers whose parts can be switched; a stop waits for no collector."""

    async def close(self: Tracing) -> None:
        self.queue.stop(0.0)

    waits, stop = (
        mock.patch.object(line, "Waits", _Switched),
        mock.patch.object(Tracing, "close", close),
    )
    with waits, stop:
        try:
            yield
        finally:
            _Switched.is_on = True
            CheckedSink.deliver = _DELIVER  # type: ignore[method-assign]
            Receipts._tell = _TELL  # type: ignore[method-assign]


async def _cost(name: str, settings: Settings, pushes: int) -> Cost:
    """Drain a task once, with windows with it and without."""
    with _switchable():
        async with connect(settings) as backend, _dispatcher(backend, settings, pushes) as one:
            return cost(await windows(one, partial(SWITCHES[name], one), _exporting_s))


def _exporting_s() -> float:
    """Return what the thread that exports spans has used of a processor."""
    for thread in threading.enumerate():
        if thread.name == THREAD and thread.ident is not None:
            return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    return 0.0


async def _receipt_bytes(settings: Settings, *, is_told: bool) -> int:
    """Return the bytes of the receipts of a drain, with and without where waits went."""
    with _switchable():
        _Switched.is_on = is_told
        async with connect(settings) as backend:
            async with _dispatcher(backend, settings, _OF_BYTES) as dispatcher:
                await dispatcher.run()
            log = backend.receipts
            start = await log.first()
            end = await log.advance(start)
            return sum(
                [
                    len(body)
                    for partition in range(len(start))
                    async for page in log.read(partition, start[partition], end[partition])
                    for body in page
                ]
            )


@asynccontextmanager
async def _dispatcher(
    backend: Backend, settings: Settings, pushes: int
) -> AsyncIterator[Dispatcher]:
    await write_task(backend, Level.HIGH, pushes, make=_push)
    sink = open_sink("null", slots=settings.slots, timeout_s=settings.sink_timeout_s)
    yield Dispatcher(backend, sink, settings, drain=True)
    await sink.close()


def _push(task_id: str, seq: int) -> Push:
    return replace(push_of(task_id, seq), submitted_at_ms=now_ms())


def _lane_bytes() -> int:
    """Return the bytes that a lane keeps which has been in five states for a day."""
    times = LaneTimes(0.0, LineTimes(0.0))
    for number in range(1, 10_000):
        times.chose(5.0, number * 8_640.0)
        times.turn(_STATES[number % len(_STATES)], number * 8_640.0)
    return times.size()


def figures(result: dict[str, Any]) -> list[Figure]:
    return [
        *_figures("waits", result, "waits", 0.01),
        *_figures("traces that are off", result, "off", 0.01),
        *_figures("1 % traced, with a collector that hangs", result, "sampled", 0.03),
        Figure("rate with waits, pushes a second", f"{result['rate_per_s']:,}"),
        at_most("bytes a receipt", result["receipt_bytes"], 24),
        at_most("bytes a lane", result["lane_bytes"], 4_096),
    ]


def _figures(what: str, result: dict[str, Any], name: str, most: float) -> list[Figure]:
    return [
        at_most(f"{what}: part of the rate that they cost", result[f"{name}_cost"], most),
        Figure(f"{what}: its spread over the pairs", _spread(result[f"{name}_cost_spread"])),
        Figure(f"{what}: part of the processor time", f"{result[f'{name}_cpu_cost']:g}"),
        Figure(f"{what}: spread of that", _spread(result[f"{name}_cpu_spread"])),
    ]


def _spread(ends: Sequence[float]) -> str:
    return f"{ends[0]:g} to {ends[1]:g}"
