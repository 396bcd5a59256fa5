"""Measures how fairly apps share a level: many tasks of one app against one task of another.

All are written before the dispatcher starts, each on a lane of its own. The sink is a webhook that
answers after 10 ms, 50 at a time: a sink that does nothing is faster than one lane is read, so that
the one task would leave turns for want of pushes. Measured in the order in which the webhook was
asked, from when both apps were seen until the first one has nothing left.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.backends import backend_settings
from bench.backlog import write_tasks
from bench.deliveries import account, tell_lost
from bench.dispatching import drain
from bench.fairness_of import jain
from bench.figures import Figure, at_least, exactly
from dev.receiver import ArrivalLine, Follower, running
from pushlane.backends.backend import connect
from pushlane.core.task import Level
from pushlane.model.limits import set_app_share
from pushlane.settings import Settings

MANY, ONE = "many", "one"
_ANSWER_MS = 10


def measure(
    broker: str = "embedded", tasks: int = 1_000, pushes: int = 20, quota: int = 1
) -> dict[str, Any]:
    """Run it; the JSON has Jain's index over the apps as `app_jain`.

    One app has so many tasks of so many pushes in the high level. The other has the quota, and as
    many pushes in one task as it takes to be backlogged for as long.
    """
    with (
        backend_settings(broker) as settings,
        tempfile.TemporaryDirectory(prefix="pushlane-apps-") as folder,
    ):
        totals, apps = asyncio.run(_submit(settings, tasks, pushes, quota))
        path = Path(folder) / "deliveries.jsonl"
        with running(path, _ANSWER_MS) as url:
            drain(settings, f"webhook:{url}")
        log = list(Follower(path).read())
    return {"broker": broker, "tasks": tasks, **judge(log, totals, apps, {MANY: 1, ONE: quota})}


async def _submit(
    settings: Settings, tasks: int, pushes: int, quota: int
) -> tuple[dict[str, int], dict[str, str]]:
    """Write all tasks; returns how many pushes each has, and the app of each."""
    async with connect(settings) as backend:
        await set_app_share(backend.documents, ONE, quota=quota)
        many = await write_tasks(backend, tasks, pushes, [Level.HIGH], MANY)
        one = await write_tasks(backend, 1, tasks * pushes * quota, [Level.HIGH], ONE)
    return {**many, **one}, {**dict.fromkeys(many, MANY), **dict.fromkeys(one, ONE)}


def judge(
    log: Sequence[ArrivalLine],
    totals: dict[str, int],
    apps: Mapping[str, str],
    quotas: Mapping[str, int],
) -> dict[str, Any]:
    """The figures of one run: what each app got by its quota, while all had a backlog."""
    lost, duplicates = account(log, totals)
    tell_lost(lost)
    measured = while_backlogged([apps[arrival.task] for arrival in log])
    counts = Counter(measured)
    return {
        "pushes": len(log),
        "measured": len(measured),
        "by_app": dict(counts),
        "app_jain": round(jain(counts[app] / quota for app, quota in quotas.items()), 4),
        "lost": len(lost),
        "duplicates": duplicates,
    }


def while_backlogged(order: Sequence[str]) -> Sequence[str]:
    """From when all apps were seen once until the first is seen for the last time."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for place, app in enumerate(order):
        first.setdefault(app, place)
        last[app] = place
    return order[max(first.values(), default=-1) + 1 : min(last.values(), default=0)]


def figures(result: dict[str, Any]) -> list[Figure]:
    return [
        at_least("Jain's index, apps of a level by their quotas", result["app_jain"], 0.99),
        exactly("lost", result["lost"], 0),
        exactly("duplicates", result["duplicates"], 0),
    ]
