"""What keys of pushes cost a dispatcher: its rate with a key on every push beside that without.

Pairs of runs, one with keys and one without, each over a task of its own that was written before.
Which of the two goes first changes from pair to pair, and what counts is the ratio within a pair,
so that whatever else the machine does falls on both. The dispatcher runs in this process, the
webhook, which answers at once, in another.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import uvloop
from msgspec.structs import replace

from bench.backends import anew, backend_settings
from bench.backlog import push_of, write_task
from bench.cpu import spent
from bench.fast_receiver import fast_receiver
from bench.figures import Figure, at_least
from pushlane.backends.backend import connect
from pushlane.core.push import Push
from pushlane.core.task import Level
from pushlane.dispatcher import Dispatcher
from pushlane.dispatcher.sinks import open_sink
from pushlane.settings import Settings

_PUSHES = {"null": 60_000, "webhook": 20_000}


class _Run(NamedTuple):
    """The rate of one dispatcher over all, and what its process spent on a push of the middle."""

    per_s: float
    cpu_us: float


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="embedded")
    parser.add_argument("--sink", choices=tuple(_PUSHES), default="null")
    parser.add_argument("--pairs", type=int, default=10, help="pairs, of which the median counts")


def run(options: argparse.Namespace) -> dict[str, Any]:
    pushes = _PUSHES[options.sink]
    pairs: list[tuple[_Run, _Run]] = []
    with backend_settings(options.broker) as settings, _sink(options) as sink:
        for number in range(options.pairs):
            keyed_first = bool(number % 2)
            one, other = (
                uvloop.run(_drained(anew(settings), sink, pushes, keyed=keyed))
                for keyed in (keyed_first, not keyed_first)
            )
            pairs.append((other, one) if keyed_first else (one, other))
    ratios = sorted(keyed.per_s / plain.per_s for plain, keyed in pairs)
    return {
        "broker": options.broker,
        "sink": options.sink,
        "slots": settings.slots,
        "pairs": options.pairs,
        "ratio": round(median(ratios), 2),
        "ratios": [round(ratio, 2) for ratio in ratios],
        "plain": _medians(plain for plain, _ in pairs),
        "keyed": _medians(keyed for _, keyed in pairs),
    }


@contextmanager
def _sink(options: argparse.Namespace) -> Iterator[str]:
    if options.sink == "null":
        yield "null"
        return
    with (
        tempfile.TemporaryDirectory(prefix="pushlane-keys-") as folder,
        fast_receiver(Path(folder) / "arrivals.jsonl") as receiver,
    ):
        yield f"webhook:{receiver.url}"


async def _drained(settings: Settings, spec: str, pushes: int, *, keyed: bool) -> _Run:
    async with connect(settings) as backend:
        make = _keyed if keyed else push_of
        await write_task(backend, Level.HIGH, pushes, make=make)
        sink = open_sink(spec, slots=settings.slots, timeout_s=settings.sink_timeout_s)
        gc.collect()
        run = await spent(Dispatcher(backend, sink, settings, drain=True), pushes)
        await sink.close()
    return _Run(pushes / run.took_s, run.cpu_us)


def _keyed(task_id: str, seq: int) -> Push:
    return replace(push_of(task_id, seq), key=f"order-{task_id}-{seq}")


def _medians(runs: Iterator[_Run]) -> dict[str, float]:
    per_s, cpu_us = zip(*runs, strict=True)
    return {"per_s": round(median(per_s)), "cpu_us": round(median(cpu_us), 1)}


def figures(result: dict[str, Any]) -> list[Figure]:
    of_runs = [
        Figure(f"{name}: rate, CPU a push", f"{run['per_s']:,}/s, {run['cpu_us']:g} µs")
        for name in ("plain", "keyed")
        for run in [result[name]]
    ]
    return [
        *of_runs,
        at_least("keyed, of plain's rate", result["ratio"], 0.85),
        Figure("in the pairs", f"{result['ratios'][0]:.2f} to {result['ratios'][-1]:.2f}"),
    ]
