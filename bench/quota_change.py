"""How soon a new quota, and new level weights, show at the sink, on a backlog already there.

Changed in turns, both ways, while a webhook takes 2,000/s (100 slots of 50 ms). Counted from the
return of the change: until the receiver's log has its last window of 100 arrivals in which a share
is not yet what is due now, by 6 arrivals or more. So a window that slips back later counts, too.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.backends import backend_settings
from bench.backlog import write_task
from bench.deliveries import account, tell_lost
from bench.dispatching import drain
from bench.fairness_of import WINDOW
from bench.figures import Figure, at_most, exactly, say
from bench.late import SLOTS, arrived, sink
from dev.receiver import ArrivalLine, Follower
from pushlane.backends.backend import Backend, connect
from pushlane.core.task import Level, Weights
from pushlane.model import task_changes
from pushlane.settings import Settings

RUNS = (("--broker", "embedded"), ("--broker", "pulsar"))
OFF = 5
_PUSHES = {Level.HIGH: 45_000, Level.MEDIUM: 20_000, Level.LOW: 40_000}
_QUOTAS = (3, 1)
_WEIGHTS = (Weights(1, 3, 6), Weights())
_APART_S = 1.5


@dataclass(frozen=True)
class Change:
    """One change, made at Unix time `at_s`, and the share of the sink that each task is due then.

    It is watched until `until_s`, when the next one comes.
    """

    kind: str
    at_s: float
    until_s: float
    due: Mapping[str, float]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="embedded")
    parser.add_argument("--changes", type=int, default=8, help="of each kind (default 8)")


def run(options: argparse.Namespace) -> dict[str, Any]:
    with (
        backend_settings(options.broker, slots=SLOTS) as settings,
        tempfile.TemporaryDirectory(prefix="pushlane-quota-") as folder,
    ):
        return {
            "broker": options.broker,
            **asyncio.run(_measure(settings, Path(folder), options.changes)),
        }


async def _measure(settings: Settings, folder: Path, count: int) -> dict[str, Any]:
    webhook, rest = Follower(folder / "webhook.jsonl"), Follower(folder / "rest.jsonl")
    async with connect(settings) as backend:
        say("writing the backlog")
        tasks = [await write_task(backend, level, _PUSHES[level]) for level in _levels()]
        with sink(settings, folder / "webhook.jsonl") as has_ended:
            await arrived(webhook, SLOTS, has_ended)
            say(f"{count} changes of a quota, and {count} of the level weights")
            await asyncio.sleep(_APART_S)
            changes = await _change(backend, tasks, count)
    drain(settings, f"log:{folder / 'rest.jsonl'}")
    webhook.read()
    rest.read()
    totals = {task: _PUSHES[level] for task, level in zip(tasks, _levels(), strict=True)}
    lost, duplicates = account([*webhook.arrivals, *rest.arrivals], totals)
    tell_lost(lost)
    found = judge(webhook.arrivals, changes)
    return {**found, "lost": len(lost), "duplicates": duplicates}


def _levels() -> list[Level]:
    """Of the tasks: two high ones, of which the first one's quota is changed."""
    return [Level.HIGH, Level.HIGH, Level.MEDIUM, Level.LOW]


async def _change(backend: Backend, tasks: Sequence[str], count: int) -> list[Change]:
    changes = []
    quota, weights = 1, Weights()
    for number in range(2 * count):
        kind = ("quota", "weights")[number % 2]
        if kind == "quota":
            quota = _QUOTAS[number // 2 % 2]
            await backend.registry.change(tasks[0], task_changes.set_quota(quota))
        else:
            weights = _WEIGHTS[number // 2 % 2]
            await backend.registry.set_weights(weights)
        at_s = time.time()
        await asyncio.sleep(_APART_S)
        changes.append(Change(kind, at_s, time.time(), due(tasks, quota, weights)))
    return changes


def due(tasks: Sequence[str], quota: int, weights: Weights) -> dict[str, float]:
    """The share of the sink that each of the four tasks is due."""
    by_level = {level: weight / 10 for level, weight in weights.by_level().items()}
    parts = (quota / (quota + 1), 1 / (quota + 1), 1.0, 1.0)
    return {
        task: part * by_level[level]
        for task, part, level in zip(tasks, parts, _levels(), strict=True)
    }


def judge(log: Sequence[ArrivalLine], changes: Sequence[Change]) -> dict[str, Any]:
    by_kind: dict[str, list[float]] = {"quota": [], "weights": []}
    for change in changes:
        after = [arrival for arrival in log if change.at_s <= arrival.at_s < change.until_s]
        by_kind[change.kind].append(effective_s(after, change))
    return {
        "effective_s": round(max(map(max, by_kind.values())), 3),
        **{f"{kind}_s": round(max(values), 3) for kind, values in by_kind.items()},
        **{f"{kind}_median_s": round(median(values), 3) for kind, values in by_kind.items()},
        **{f"{kind}_each_s": [round(value, 3) for value in by_kind[kind]] for kind in by_kind},
    }


def effective_s(after: Sequence[ArrivalLine], change: Change) -> float:
    """From the change until the end of the last window that is off; `after` is what came then."""
    counts: Counter[str] = Counter()
    effective_at_s = change.at_s
    for place, arrival in enumerate(after):
        counts[arrival.task] += 1
        if place >= WINDOW:
            counts[after[place - WINDOW].task] -= 1
        if place < WINDOW - 1 or _is_off(counts, change.due):
            effective_at_s = arrival.at_s
    return effective_at_s - change.at_s


def _is_off(counts: Counter[str], due: Mapping[str, float]) -> bool:
    return any(abs(counts[task] - share * WINDOW) > OFF for task, share in due.items())


def figures(result: dict[str, Any]) -> list[Figure]:
    return [
        at_most("a change shows at the sink, s (longest)", result["effective_s"], 1),
        Figure("quota, s (longest, median)", _two(result, "quota")),
        Figure("level weights, s (longest, median)", _two(result, "weights")),
        exactly("lost", result["lost"], 0),
        exactly("duplicates", result["duplicates"], 0),
    ]


def _two(result: dict[str, Any], kind: str) -> str:
    return f"{result[f'{kind}_s']:g}, {result[f'{kind}_median_s']:g}"
