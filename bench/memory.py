"""Measures what a dispatcher holds in memory: with a long backlog, and for each lane it reads.

Resident memory of `pushlane dispatch` with a slow sink: after it has worked for a while on one task
of 10,000 pushes, then on one of 1,000,000; without lanes of tasks, then with 4,096 idle ones. Of
these two also the part of a core that it uses while it has nothing to do.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

from bench.backends import backend_settings
from bench.backlog import BUNDLE, write_tasks
from bench.cpu import cpu_s
from bench.dispatching import Dispatching, dispatching
from bench.figures import Figure, at_most, say
from bench.resident import resident_kib
from pushlane.backends.backend import connect
from pushlane.core.errors import PushlaneError
from pushlane.core.names import own_lane
from pushlane.core.task import Level, Task
from pushlane.model import task_changes
from pushlane.model.names import new_task_id
from pushlane.settings import Settings

RUNS = (("--broker", "embedded"), ("--broker", "pulsar"))
_BACKLOGS = (10_000, 1_000_000)
_SLOW_SINK = "bench.slow_sink:deliver_slowly"
_STEADY_S = 2.0
_IDLE_S = 20.0
_STEADY_KIB = 256
_GIVE_UP_S = 60.0
_AT_ONCE = 32
_FLAT = 1.1


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="embedded")
    parser.add_argument("--lanes", type=int, default=4_096, help="idle lanes (default 4096)")


def run(options: argparse.Namespace) -> dict[str, Any]:
    rss_kib = {pushes: _with_backlog(options.broker, pushes) for pushes in _BACKLOGS}
    without, idle = _with_lanes(options.broker, 0)
    with_lanes, idle_with_lanes = _with_lanes(options.broker, options.lanes)
    return {
        "broker": options.broker,
        "rss_mb_at": {str(pushes): round(kib / 1024, 1) for pushes, kib in rss_kib.items()},
        "growth": round(rss_kib[_BACKLOGS[-1]] / rss_kib[_BACKLOGS[0]], 3),
        "lanes": options.lanes,
        "rss_mb_idle": round(without / 1024, 1),
        "kib_per_lane": round((with_lanes - without) / options.lanes, 1),
        "idle_core": round(idle, 4),
        "idle_core_with_lanes": round(idle_with_lanes, 4),
    }


def _with_backlog(broker: str, pushes: int) -> int:
    async def write(settings: Settings) -> None:
        async with connect(settings) as backend:
            await write_tasks(backend, 1, pushes)

    with backend_settings(broker) as settings:
        say(f"a backlog of {pushes:,}: writing")
        asyncio.run(write(settings))
        with dispatching(settings, _SLOW_SINK) as process:
            return _steady_kib(process)


def _with_lanes(broker: str, lanes: int) -> tuple[int, float]:
    """Return the resident KiB with so many idle lanes, and the part of a core that it then uses."""

    async def open_lanes(settings: Settings) -> None:
        async with connect(settings) as backend:
            room = asyncio.Semaphore(_AT_ONCE)

            async def open_one() -> None:
                task_id = new_task_id()
                lane = own_lane(task_id)
                task = Task(
                    id=task_id,
                    level=Level.HIGH,
                    lane=lane,
                    bundle=BUNDLE,
                    created_at_ms=task_changes.now_ms(),
                )
                async with room:
                    await backend.broker.open_lane(lane)
                    await backend.registry.add(task_changes.start(task))

            await asyncio.gather(*(open_one() for _ in range(lanes)))

    with backend_settings(broker) as settings:
        say(f"{lanes:,} idle lanes: opening")
        asyncio.run(open_lanes(settings))
        with dispatching(settings, _SLOW_SINK) as process:
            kib = _steady_kib(process)
            before_s = cpu_s(process.pid)
            time.sleep(_IDLE_S)
            return kib, (cpu_s(process.pid) - before_s) / _IDLE_S


def _steady_kib(process: Dispatching) -> int:
    """Resident memory, once it has not grown for a while."""
    give_up_at = time.monotonic() + _GIVE_UP_S
    seen = [0]
    while time.monotonic() < give_up_at:
        if process.has_ended:
            raise PushlaneError("the dispatcher that was to be measured has ended")
        time.sleep(_STEADY_S)
        seen.append(resident_kib(process.pid))
        if len(seen) > 3 and max(seen[-3:]) - min(seen[-3:]) < _STEADY_KIB:
            break
    say(f"  {seen[-1] / 1024:,.1f} MiB")
    return seen[-1]


def figures(result: dict[str, Any]) -> list[Figure]:
    return [
        *(
            Figure(f"resident, backlog of {int(pushes):,}", f"{mb:g} MiB")
            for pushes, mb in result["rss_mb_at"].items()
        ),
        at_most("growth from the smaller backlog to the larger", result["growth"], _FLAT),
        Figure("resident without tasks", f"{result['rss_mb_idle']:g} MiB"),
        at_most(f"KiB an idle lane, {result['lanes']:,} lanes", result["kib_per_lane"], 16),
        *(
            Figure(f"of a core, idle, {lanes:,} lanes", f"{result[name]:g}")
            for lanes, name in ((0, "idle_core"), (result["lanes"], "idle_core_with_lanes"))
            if name in result
        ),
    ]
