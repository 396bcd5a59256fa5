"""How fast one dispatcher is when its sink does nothing, beside two that only consume.

Each round writes its tasks anew, and as many pushes one by one to as many topics for the others.
Levels share equally here, so that all lanes last as long. What was delivered is kept by task and
seq (bench/counting.py).
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from statistics import median
from typing import Any

from bench.backends import backend_settings
from bench.backlog import write_tasks
from bench.drained import Drained, drained
from bench.figures import Figure, at_least, exactly, say
from bench.peers.venv import MissingPeer
from bench.rivals import peer_rate, perf_rate, write_topics
from pushlane.backends.backend import connect
from pushlane.core.task import Weights
from pushlane.settings import Settings

RUNS = (("--broker", "pulsar"), ("--broker", "embedded"))
_OF_THE_PEER = 4  # it takes as long for a quarter of the messages

_SHORT = {"pulsar_perf": "perf", "peer": "peer", "peer_prefetching": "peer_prefetching"}

Round = dict[str, float | str]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="pulsar")
    parser.add_argument(
        "--lanes", type=int, default=20, help="tasks, each on its lane (default 20)"
    )
    parser.add_argument("--pushes", type=int, default=25_000, help="pushes a task (default 25000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; ratios are of their medians")


def run(options: argparse.Namespace) -> dict[str, Any]:
    ours: list[Drained] = []
    rivals: list[Round] = []
    with backend_settings(options.broker) as settings:
        for number in range(options.rounds):
            say(f"round {number + 1} of {options.rounds}: writing")
            totals = asyncio.run(_write(settings, options.lanes, options.pushes))
            if options.broker == "pulsar":
                rivals.append(_rivals(settings, options.lanes, options.pushes))
            ours.append(drained(settings, totals))
            say(f"  pushlane {ours[-1].rate:,}/s, {ours[-1].cpu_us} us of CPU a push")
    return {
        "broker": options.broker,
        "lanes": options.lanes,
        "pushes": options.lanes * options.pushes,
        "batch": settings.batch,
        "prefetch": settings.prefetch,
        "slots": settings.slots,
        **judge(ours, rivals),
    }


async def _write(settings: Settings, lanes: int, pushes: int) -> dict[str, int]:
    async with connect(settings) as backend:
        await backend.registry.set_weights(Weights(1, 1, 1))
        return await write_tasks(backend, lanes, pushes)


def _rivals(settings: Settings, lanes: int, pushes: int) -> Round:
    names, messages = write_topics(settings, lanes, pushes), lanes * pushes
    few = messages // _OF_THE_PEER
    return {
        "pulsar_perf": _try("pulsar-perf", lambda: perf_rate(settings, names, messages)),
        "peer": _try("peer", lambda: peer_rate(settings, names, few)),
        "peer_prefetching": _try(
            f"peer with a receiver queue of {settings.prefetch}",
            lambda: peer_rate(settings, names, few, settings.prefetch),
        ),
    }


def _try(name: str, measure: Callable[[], float]) -> float | str:
    """Its rate, or why there is none."""
    try:
        rate = measure()
    except MissingPeer as missing:
        say(f"  {name}: {missing.reason}")
        return f"not installed: {missing.reason}"
    say(f"  {name} {rate:,.0f}/s")
    return rate


def judge(ours: list[Drained], rivals: list[Round]) -> dict[str, Any]:
    """Medians over the rounds; each ratio is of the rounds in which the rival ran."""
    rate = median(one.rate for one in ours)
    result: dict[str, Any] = {
        "rate": round(rate),
        "rates": [one.rate for one in ours],
        "cpu_us": median(one.cpu_us for one in ours),
    }
    for name in rivals[0] if rivals else ():
        rates = [found for one in rivals if isinstance(found := one[name], float)]
        result[f"{name}_rate"] = round(median(rates)) if rates else rivals[0][name]
        result[f"ratio_to_{_SHORT[name]}"] = round(rate / median(rates), 2) if rates else None
    result["lost"] = sum(one.lost for one in ours)
    result["duplicates"] = sum(one.duplicates for one in ours)
    return result


def figures(result: dict[str, Any]) -> list[Figure]:
    shown = [
        Figure("pushes a second", f"{result['rate']:,}"),
        Figure("CPU of the process a push", f"{result['cpu_us']:g} us"),
    ]
    for name, key, short, goal in (
        ("pulsar-perf consume", "pulsar_perf", "perf", 1),
        ("pulsar-dispatcher", "peer", "peer", 5),
        ("pulsar-dispatcher with ours' receiver queue", "peer_prefetching", "peer_prefetching", 0),
    ):
        shown += _beside(name, result.get(f"{key}_rate"), result.get(f"ratio_to_{short}"), goal)
    return [
        *shown,
        exactly("lost", result["lost"], 0),
        exactly("duplicates", result["duplicates"], 0),
    ]


def _beside(name: str, rate: float | str | None, ratio: float | None, goal: float) -> list[Figure]:
    """A rival's figures: none where it was not asked, its reason where it could not run."""
    if rate is None:
        return []
    if isinstance(rate, str) or ratio is None:
        return [Figure(f"{name}, a second", str(rate))]
    beside = f"ratio to {name}"
    return [
        Figure(f"{name}, a second", f"{rate:,}"),
        at_least(beside, ratio, goal) if goal else Figure(beside, f"{ratio:g}"),
    ]
