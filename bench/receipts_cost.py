"""What receipts cost the dispatcher: its rate with them beside its rate without.

One task on one lane, all written before its dispatcher starts, which runs in this process. Runs
without and with receipts take turns, so that whatever else the machine does falls on both.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import uvloop

from bench.backends import anew, backend_settings
from bench.backlog import write_task
from cli.demo.receiver import running
from dispatcher import Dispatcher
from dispatcher.sinks import open_sink
from lanes.backend import connect
from lanes.settings import Settings
from lanes.task import Level

_PUSHES = {"null": 40_000, "webhook": 10_000}
_ROUNDS = 5
_DELAY_MS = 2.0


def measure(broker: str = "embedded", sink: str = "null", rounds: int = _ROUNDS) -> dict[str, Any]:
    """Pushes a second without and with receipts, and the part of the first that they cost."""
    rates: dict[str, list[float]] = {"off": [], "on": []}
    pushes = _PUSHES[sink]
    with backend_settings(broker) as settings, _sink(sink) as spec:
        for number in range(rounds):
            for receipts in ("off", "on") if number % 2 else ("on", "off"):
                own = anew(settings).model_copy(update={"receipts": receipts})
                took_s = uvloop.run(_drain_s(own, spec, pushes))
                rates[receipts].append(pushes / took_s)
    off, on = median(rates["off"]), median(rates["on"])
    return {
        "broker": broker,
        "sink": sink,
        "rate_off": round(off),
        "rate_on": round(on),
        "cost": round(1 - on / off, 3),
    }


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


async def _drain_s(settings: Settings, spec: str, pushes: int) -> float:
    """Seconds from the dispatcher's start until all is delivered and acked."""
    async with connect(settings) as backend:
        await write_task(backend, Level.HIGH, pushes)
        sink = open_sink(spec, slots=settings.slots, timeout_s=settings.sink_timeout_s)
        started_s = time.monotonic()
        await Dispatcher(backend, sink, settings, drain=True).run()
        took_s = time.monotonic() - started_s
        await sink.close()
    return took_s
