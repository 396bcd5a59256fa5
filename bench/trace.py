"""What it costs to tell where each push's wait went: with it beside without, in alternating pairs.

One task on one lane, all written before its dispatcher starts, which runs in this process with a
sink that does nothing and receipts. Beside the rate there is the processor time a push, which a
busy machine disturbs less. Bytes are of receipts as they are appended, before any compression;
memory is what one lane keeps once its samples are full.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

import uvloop
from msgspec.structs import replace

from bench.backends import anew, backend_settings
from bench.backlog import push_of, write_task
from bench.cpu import Spent, spent
from bench.figures import Figure, at_most
from pushlane.backends.backend import connect
from pushlane.core.lane import Job
from pushlane.core.push import Push
from pushlane.core.task import Level, now_ms
from pushlane.dispatcher import Dispatcher, line
from pushlane.dispatcher.sinks import open_sink
from pushlane.dispatcher.waits import LaneTimes, LineTimes, Waits
from pushlane.model.waits import Cause
from pushlane.settings import Settings

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


def run(options: argparse.Namespace) -> dict[str, Any]:
    pairs: list[dict[str, Spent]] = []
    sizes: dict[str, int] = {}
    with backend_settings(options.broker) as settings:
        for number in range(options.pairs + 1):  # the first warms up
            pair = {}
            for kind in ("told", "untold") if number % 2 else ("untold", "told"):
                pair[kind], sizes[kind] = uvloop.run(
                    _drained(anew(settings), options.pushes, is_told=kind == "told")
                )
            pairs += [pair] if number else []
    cpu = [pair["told"].cpu_us / pair["untold"].cpu_us - 1 for pair in pairs]
    rate = [1 - pair["untold"].took_s / pair["told"].took_s for pair in pairs]
    return {
        "broker": options.broker,
        "pairs": options.pairs,
        "rate_per_s": round(median(options.pushes / pair["told"].took_s for pair in pairs)),
        "cpu_us": round(median(pair["told"].cpu_us for pair in pairs), 2),
        "waits_cost": round(median(rate), 4),
        "waits_cost_spread": [round(min(rate), 4), round(max(rate), 4)],
        "waits_cpu_cost": round(median(cpu), 4),
        "waits_cpu_spread": [round(min(cpu), 4), round(max(cpu), 4)],
        "receipt_bytes": round((sizes["told"] - sizes["untold"]) / options.pushes, 1),
        "lane_bytes": _lane_bytes(),
    }


async def _drained(settings: Settings, pushes: int, *, is_told: bool) -> tuple[Spent, int]:
    """What a drain takes, and the bytes of its receipts."""
    async with connect(settings) as backend:
        await write_task(backend, Level.HIGH, pushes, make=_push)
        with _waits(Waits if is_told else _Untold):
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


@contextmanager
def _waits(kind: type[Waits]) -> Iterator[None]:
    vars(line)["Waits"] = kind
    try:
        yield
    finally:
        vars(line)["Waits"] = Waits


def _lane_bytes() -> int:
    """What a lane keeps that has been in five states for a day."""
    times = LaneTimes(0.0, LineTimes(0.0))
    for number in range(1, 10_000):
        times.chose(5.0, number * 8_640.0)
        times.turn(_STATES[number % len(_STATES)], number * 8_640.0)
    return times.size()


def figures(result: dict[str, Any]) -> list[Figure]:
    return [
        at_most("part of the rate that waits cost", result["waits_cost"], 0.01),
        Figure("its spread over the pairs", _spread(result["waits_cost_spread"])),
        Figure("part of the processor time a push", f"{result['waits_cpu_cost']:g}"),
        Figure("its spread over the pairs ", _spread(result["waits_cpu_spread"])),
        Figure("rate with waits, pushes a second", f"{result['rate_per_s']:,}"),
        at_most("bytes a receipt", result["receipt_bytes"], 24),
        at_most("bytes a lane", result["lane_bytes"], 4_096),
    ]


def _spread(ends: Sequence[float]) -> str:
    return f"{ends[0]:g} to {ends[1]:g}"
