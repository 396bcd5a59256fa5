"""What a delivery mode costs: the rates of at_most_once and once beside that of at_least_once.

One task on one lane, all written before its dispatcher starts. Modes take turns, so that whatever
else the machine does falls on all. The dispatcher runs in this process, the webhook in another.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import uvloop

from bench.backends import anew, backend_settings
from bench.figures import Figure, at_least
from dev.receiver import running
from pushlane.backends.backend import connect
from pushlane.core.task import DeliveryMode, Level
from pushlane.dispatcher import Dispatcher
from pushlane.dispatcher.sinks import open_sink
from pushlane.producers.request import SubmitRequest
from pushlane.producers.submit import submit
from pushlane.settings import Settings

RUNS = tuple(
    ("--broker", broker, "--sink", sink)
    for broker in ("embedded", "pulsar")
    for sink in ("null", "webhook")
)
_PUSHES = {"null": 40_000, "webhook": 8_000}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="embedded")
    parser.add_argument("--sink", choices=tuple(_PUSHES), default="webhook")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, of which the median counts")
    parser.add_argument("--delay-ms", type=float, default=2.0, help="until the webhook answers")


def run(options: argparse.Namespace) -> dict[str, Any]:
    rates: dict[DeliveryMode, list[float]] = {mode: [] for mode in DeliveryMode}
    pushes = _PUSHES[options.sink]
    with backend_settings(options.broker) as settings, _sink(options) as sink:
        for _ in range(options.rounds):
            for mode, of_mode in rates.items():
                of_mode.append(pushes / uvloop.run(_drain_s(anew(settings), sink, mode, pushes)))
    per_s = {mode.value: round(median(of_mode)) for mode, of_mode in rates.items()}
    base = per_s[DeliveryMode.AT_LEAST_ONCE.value]
    ratios = {mode: round(rate / base, 2) for mode, rate in per_s.items()}
    return {
        "broker": options.broker,
        "sink": options.sink,
        "slots": settings.slots,
        "rate_per_s": per_s,
        "of_at_least_once": ratios,
    }


@contextmanager
def _sink(options: argparse.Namespace) -> Iterator[str]:
    if options.sink == "null":
        yield "null"
        return
    with (
        tempfile.TemporaryDirectory(prefix="pushlane-modes-") as folder,
        running(Path(folder) / "arrivals.jsonl", options.delay_ms) as url,
    ):
        yield f"webhook:{url}"


async def _drain_s(settings: Settings, spec: str, mode: DeliveryMode, pushes: int) -> float:
    """Seconds from the dispatcher's start until all is delivered and acked."""
    rows = ({"recipient": f"r{number}"} for number in range(pushes))
    request = SubmitRequest(source=rows, level=Level.HIGH, body="x" * 150, delivery=mode)
    async with connect(settings) as backend:
        await submit(backend, settings, request)
        sink = open_sink(spec, slots=settings.slots, timeout_s=settings.sink_timeout_s)
        started = time.monotonic()
        await Dispatcher(backend, sink, settings, drain=True).run()
        took_s = time.monotonic() - started
        await sink.close()
    return took_s


def figures(result: dict[str, Any]) -> list[Figure]:
    once = DeliveryMode.ONCE.value
    return [
        Figure(mode, f"{rate:,}/s, {result['of_at_least_once'][mode]:.2f}")
        for mode, rate in result["rate_per_s"].items()
        if mode != once
    ] + [at_least("once, of at_least_once's rate", result["of_at_least_once"][once], 0.5)]
