"""What receipts cost the dispatcher: its rate with them beside its rate without.

One task on one lane, all written before its dispatcher starts, which runs in this process. Runs
without and with receipts take turns, so that whatever else the machine does falls on both.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import uvloop

from bench.backends import anew, backend_settings
from bench.backlog import write_task
from bench.cpu import Spent, spent
from dev.receiver import running
from pushlane.backends.backend import connect
from pushlane.core.task import Level
from pushlane.dispatcher import Dispatcher
from pushlane.dispatcher.sinks import open_sink
from pushlane.settings import Settings

_PUSHES = {"null": 100_000, "webhook": 10_000}
_ROUNDS = 3
_DELAY_MS = 2.0


def measure(broker: str = "embedded", sink: str = "null", rounds: int = _ROUNDS) -> dict[str, Any]:
    """Pushes a second without and with receipts, and the part of the first that they cost.

    Likewise the processor time of this process a push, which a busy machine disturbs less.
    """
    runs: dict[str, list[Spent]] = {"off": [], "on": []}
    pushes = _PUSHES[sink]
    with backend_settings(broker) as settings, _sink(sink) as spec:
        for number in range(rounds):
            for receipts in ("off", "on") if number % 2 else ("on", "off"):
                own = anew(settings).but(**{"receipts": receipts})
                runs[receipts].append(uvloop.run(_drain(own, spec, pushes)))
    off, on = (_median(runs[receipts]) for receipts in ("off", "on"))
    return {
        "broker": broker,
        "sink": sink,
        "rate_off": round(pushes / off.took_s),
        "rate_on": round(pushes / on.took_s),
        "cost": round(1 - off.took_s / on.took_s, 3),
        "cpu_us_off": round(off.cpu_us, 2),
        "cpu_us_on": round(on.cpu_us, 2),
    }


def _median(runs: list[Spent]) -> Spent:
    return Spent(median(run.took_s for run in runs), median(run.cpu_us for run in runs))


@contextmanager
def _sink(sink: str) -> Iterator[str]:
    if sink == "null":
        yield "null"
        return
    with (
        tempfile.TemporaryDirectory(prefix="pushlane-receipts-") as folder,
        running(Path(folder) / "arrivals.jsonl", _DELAY_MS) as url,
    ):
        yield f"webhook:{url}"


async def _drain(settings: Settings, spec: str, pushes: int) -> Spent:
    async with connect(settings) as backend:
        await write_task(backend, Level.HIGH, pushes)
        sink = open_sink(spec, slots=settings.slots, timeout_s=settings.sink_timeout_s)
        run = await spent(Dispatcher(backend, sink, settings, drain=True), pushes)
        await sink.close()
    return run
