"""Waits and traces cost something: each is measured with it beside without, in alternating pairs.

One task on one lane, all written before its dispatcher starts, which runs in this process with a
sink that does nothing and receipts. Beside the rate there is the processor time a push, which a
busy machine disturbs less. Bytes are of receipts as they are appended, before any compression;
memory is what one lane keeps once its samples are full.
"""

from __future__ import annotations

import argparse
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any
from unittest import mock

import uvloop
from msgspec.structs import replace

from bench.backends import anew, backend_settings
from bench.backlog import push_of, write_task
from bench.cpu import Spent, spent
from bench.figures import Figure, at_most
from pushlane.backends.backend import connect
from pushlane.core.lane import Job
from pushlane.core.ports import Delivery
from pushlane.core.push import Outcome, Push
from pushlane.core.task import Level, now_ms
from pushlane.dispatcher import Dispatcher, checked_sink, line
from pushlane.dispatcher.checked_sink import CheckedSink
from pushlane.dispatcher.lane_times import LaneTimes, LineTimes
from pushlane.dispatcher.receipts import Receipts
from pushlane.dispatcher.sinks import open_sink
from pushlane.dispatcher.tracing.traces import Tracing
from pushlane.dispatcher.waits import Waits
from pushlane.model.waits import Cause
from pushlane.settings import Settings

SAMPLED = 0.01
RUNS = (("--broker", "embedded"),)
_STATES = (None, Cause.FEED, Cause.DURABLE, Cause.PAUSED, Cause.LIMIT)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="embedded")
    parser.add_argument("--pushes", type=int, default=100_000)
    parser.add_argument("--pairs", type=int, default=10, help="of which the median counts")


class _Untold(Waits):
    """Keeps nothing, and tells nothing."""

    def note(self, cause: Cause | None) -> None:
        return

    def watch(self, *_: object) -> None:
        return

    def columns(
        self,
        jobs: Sequence[Job],
        pushes: Sequence[Push],
        submitted_ms: Sequence[int],
        due_ms: Sequence[int],
        until_ms: Sequence[int],
    ) -> dict[str, list[int]]:
        return {}


class _BareSink(CheckedSink):
    """Delivers without a look whether anything is traced."""

    async def deliver(self, batch: Sequence[Delivery]) -> Sequence[Outcome]:
        return checked_sink._checked(await self._sink.deliver(batch), batch)


PAIRS = {"waits": ("untold", "told"), "off": ("bare", "told"), "sampled": ("told", "sampled")}
"""The kinds of a pair: without it, and with it. `told` is as it comes, with no trace_endpoint."""


def run(options: argparse.Namespace) -> dict[str, Any]:
    result: dict[str, Any] = {"broker": options.broker, "pairs": options.pairs}
    sizes: dict[str, int] = {}
    with backend_settings(options.broker) as settings, _hanging() as endpoint:
        for name, (without, with_it) in PAIRS.items():
            pairs: list[tuple[Spent, Spent]] = []
            for number in range(options.pairs + 1):  # the first warms up
                pair: dict[str, Spent] = {}
                for kind in (without, with_it) if number % 2 else (with_it, without):
                    with _as(kind):
                        drained = _drained(_settings(kind, settings, endpoint), options.pushes)
                        pair[kind], sizes[kind] = uvloop.run(drained)
                pairs += [(pair[without], pair[with_it])] if number else []
            result |= _costs(name, pairs)
            if name == "waits":
                told = [with_waits for _, with_waits in pairs]
                result["rate_per_s"] = round(median(options.pushes / one.took_s for one in told))
                result["cpu_us"] = round(median(one.cpu_us for one in told), 2)
    bytes_more = sizes["told"] - sizes["untold"]
    result["receipt_bytes"] = round(bytes_more / options.pushes, 1)
    return result | {"lane_bytes": _lane_bytes()}


def _costs(name: str, pairs: Sequence[tuple[Spent, Spent]]) -> dict[str, Any]:
    """The part of the rate and of the processor time a push that it costs, with their spread."""
    rate = [1 - before.took_s / after.took_s for before, after in pairs]
    cpu = [after.cpu_us / before.cpu_us - 1 for before, after in pairs]
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


def _settings(kind: str, settings: Settings, endpoint: str) -> Settings:
    found = anew(settings)
    if kind != "sampled":
        return found
    return found.but(trace_endpoint=endpoint, trace_sample=SAMPLED)


@contextmanager
def _as(kind: str) -> Iterator[None]:
    """Have dispatchers be of this kind meanwhile; a stop waits for no collector."""

    async def close(self: Tracing) -> None:
        self.queue.stop(0.0)

    with ExitStack() as patches:
        if kind == "untold":
            patches.enter_context(mock.patch.object(line, "Waits", _Untold))
        if kind == "bare":
            patches.enter_context(mock.patch.object(line, "CheckedSink", _BareSink))
            patches.enter_context(mock.patch.object(Receipts, "_tell", Receipts._count_waits))
        patches.enter_context(mock.patch.object(Tracing, "close", close))
        yield


async def _drained(settings: Settings, pushes: int) -> tuple[Spent, int]:
    """Return the time that a drain takes, and the bytes of its receipts."""
    async with connect(settings) as backend:
        await write_task(backend, Level.HIGH, pushes, make=_push)
        sink = open_sink("null", slots=settings.slots, timeout_s=settings.sink_timeout_s)
        took = await spent(Dispatcher(backend, sink, settings, drain=True), pushes)
        await sink.close()
        log = backend.receipts
        start = await log.first()
        end = await log.advance(start)
        return took, sum(
            [
                len(body)
                for partition in range(len(start))
                async for page in log.read(partition, start[partition], end[partition])
                for body in page
            ]
        )


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
