"""What a dispatcher process holds in memory: with a long backlog, and for each lane it reads.

Resident memory of `pushlane dispatch` with a slow sink: after it has worked for a while on one task
of 10,000 pushes, then on one of 1,000,000; without lanes of tasks, then with 4,096 idle ones.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from pathlib import Path
from typing import Any

from bench.backends import backend_settings
from bench.backlog import BUNDLE, write_tasks
from bench.dispatching import Dispatching, dispatching
from bench.figures import Figure, at_most, say
from pushlane.backends.backend import connect
from pushlane.core.errors import PushlaneError
from pushlane.core.names import own_lane
from pushlane.core.task import Level, Task
from pushlane.model import task_changes
from pushlane.model.names import new_task_id
from pushlane.settings import Settings

RUNS = (("--broker", "embedded"), ("--broker", "pulsar"))
_BACKLOGS = (10_000, 1_000_000)
_SLOW_SINK = "bench.memory:deliver_slowly"
_DELIVERY_S = 0.05
_STEADY_S = 2.0
_STEADY_KIB = 256
_GIVE_UP_S = 60.0
_AT_ONCE = 32
_FLAT = 1.1


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="embedded")
    parser.add_argument("--lanes", type=int, default=4_096, help="idle lanes (default 4096)")


async def deliver_slowly(_push: object) -> None:
    """The sink: a processor of one's own, as `dispatch --sink` takes it."""
    await asyncio.sleep(_DELIVERY_S)


def run(options: argparse.Namespace) -> dict[str, Any]:
    rss_kib = {pushes: _with_backlog(options.broker, pushes) for pushes in _BACKLOGS}
    without, with_lanes = _with_lanes(options.broker, 0), _with_lanes(options.broker, options.lanes)
    return {
        "broker": options.broker,
        "rss_mb_at": {str(pushes): round(kib / 1024, 1) for pushes, kib in rss_kib.items()},
        "growth": round(rss_kib[_BACKLOGS[-1]] / rss_kib[_BACKLOGS[0]], 3),
        "lanes": options.lanes,
        "rss_mb_idle": round(without / 1024, 1),
        "kib_per_lane": round((with_lanes - without) / options.lanes, 1),
    }


def _with_backlog(broker: str, pushes: int) -> int:
    async def write(settings: Settings) -> None:
        async with connect(settings) as backend:
            await write_tasks(backend, 1, pushes)

    with backend_settings(broker) as settings:
        say(f"a backlog of {pushes:,}: writing")
        asyncio.run(write(settings))
        return _measured(settings)


def _with_lanes(broker: str, lanes: int) -> int:
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
        return _measured(settings)


def _measured(settings: Settings) -> int:
    with dispatching(settings, _SLOW_SINK) as process:
        kib = _steady_kib(process)
    say(f"  {kib / 1024:,.1f} MiB")
    return kib


def _steady_kib(process: Dispatching) -> int:
    """Resident memory, once it has not grown for a while."""
    give_up_at = time.monotonic() + _GIVE_UP_S
    seen = [0]
    while time.monotonic() < give_up_at:
        if process.has_ended:
            raise PushlaneError("the dispatcher that was to be measured has ended")
        time.sleep(_STEADY_S)
        seen.append(_resident_kib(process.pid))
        if len(seen) > 3 and max(seen[-3:]) - min(seen[-3:]) < _STEADY_KIB:
            break
    return seen[-1]


def _resident_kib(pid: int) -> int:
    found = re.search(r"VmRSS:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) if found else 0


def figures(result: dict[str, Any]) -> list[Figure]:
    return [
        *(
            Figure(f"resident, backlog of {int(pushes):,}", f"{mb:g} MiB")
            for pushes, mb in result["rss_mb_at"].items()
        ),
        at_most("growth from the smaller backlog to the larger", result["growth"], _FLAT),
        Figure("resident without tasks", f"{result['rss_mb_idle']:g} MiB"),
        at_most(f"KiB an idle lane, {result['lanes']:,} lanes", result["kib_per_lane"], 16),
    ]
