"""What the number of lanes costs: one dispatcher with a sink that does nothing, and the peer.

The same number of pushes spread over ever more tasks, each on a lane of its own (embedded: also
100,000 tasks of one push, which share the pool's lanes). Rates are of the part that begins when
every task was seen once: opening that many lanes is not in them. Levels share equally.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path
from typing import Any

from bench.backends import backend_settings
from bench.backlog import write_tasks
from bench.drained import Drained, drained
from bench.figures import Figure, at_least, at_most, exactly, say
from bench.peers.venv import MissingPeer
from bench.rivals import peer_rate, write_topics
from bench.singles import write_singles
from pushlane.backends.backend import connect
from pushlane.core.task import Weights
from pushlane.settings import Settings

RUNS = (("--broker", "pulsar", "--full"), ("--broker", "embedded"))
_LANES = (64, 256, 1_024, 4_096)
_FEW = 1_024
_OF_THE_PEER = 4
_SINGLES = 100_000


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="pulsar")
    parser.add_argument("--pushes", type=int, default=262_144, help="in all (default 262144)")
    parser.add_argument(
        "--full", action="store_true", help="Pulsar: 4,096 lanes too, which takes four minutes more"
    )


def run(options: argparse.Namespace) -> dict[str, Any]:
    counts = _LANES if options.full or options.broker == "embedded" else _LANES[:-1]
    ours: dict[int, Drained] = {}
    peers: dict[int, float | str] = {}
    for lanes in counts:  # each with a backend of its own, so that none has the lanes of another
        with backend_settings(options.broker) as settings:
            totals = _written(settings, lanes, options.pushes // lanes)
            if options.broker == "pulsar" and lanes <= _FEW:
                peers[lanes] = _peer(settings, lanes, options.pushes // lanes)
            ours[lanes] = drained(settings, totals)
        say(f"  pushlane {ours[lanes].rate:,}/s, {ours[lanes].cpu_us} us of CPU a push")
    singles = _singles() if options.broker == "embedded" else None
    return {"broker": options.broker, "pushes": options.pushes, **judge(ours, peers, singles)}


def _written(settings: Settings, lanes: int, pushes: int) -> dict[str, int]:
    async def write() -> dict[str, int]:
        async with connect(settings) as backend:
            await backend.registry.set_weights(Weights(1, 1, 1))
            return await write_tasks(backend, lanes, pushes)

    say(f"{lanes:,} lanes: writing {pushes:,} pushes to each")
    started = time.monotonic()
    totals = asyncio.run(write())
    say(f"  written in {time.monotonic() - started:.0f} s")
    return totals


def _peer(settings: Settings, lanes: int, pushes: int) -> float | str:
    messages = lanes * pushes // _OF_THE_PEER
    try:
        rate = round(peer_rate(settings, write_topics(settings, lanes, pushes), messages))
    except MissingPeer as missing:
        say(f"  peer: {missing.reason}")
        return f"not installed: {missing.reason}"
    say(f"  peer {rate:,}/s")
    return rate


def _singles() -> Drained:
    """100,000 tasks of one push each."""
    with backend_settings("embedded") as settings:
        say(f"{_SINGLES:,} tasks of one push: writing")
        one = drained(settings, asyncio.run(write_singles(settings, _SINGLES)))
    say(f"  pushlane {one.rate:,}/s")
    return one


def judge(
    ours: dict[int, Drained], peers: dict[int, float | str], singles: Drained | None
) -> dict[str, Any]:
    """`drop` is from the fewest lanes to the most, as a part of the rate."""
    rates = {str(lanes): one.rate for lanes, one in ours.items()}
    runs = [*ours.values(), *([singles] if singles else [])]
    first, last = ours[min(ours)].rate, ours[max(ours)].rate
    return {
        "rates": rates,
        "cpu_us": {str(lanes): one.cpu_us for lanes, one in ours.items()},
        "drop": round(1 - last / first, 3) if first else 1.0,
        "peer_rates": {str(lanes): rate for lanes, rate in peers.items()},
        "ratio_to_peer": {
            str(lanes): round(ours[lanes].rate / rate, 1)
            for lanes, rate in peers.items()
            if isinstance(rate, float | int) and rate
        },
        "singles_rate": singles.rate if singles else None,
        "lost": sum(one.lost for one in runs),
        "duplicates": sum(one.duplicates for one in runs),
    }


def figures(result: dict[str, Any]) -> list[Figure]:
    shown = [
        Figure(f"pushes a second, {int(lanes):,} lanes", f"{rate:,}")
        for lanes, rate in result["rates"].items()
    ]
    most = max(map(int, result["rates"]))
    goal = 0.1 if result["broker"] == "pulsar" else 0.25
    shown.append(at_most(f"drop from 64 to {most:,} lanes", result["drop"], goal))
    if result["singles_rate"]:
        shown.append(Figure("pushes a second, 100,000 tasks of one", f"{result['singles_rate']:,}"))
    for lanes, rate in result["peer_rates"].items():
        text = rate if isinstance(rate, str) else f"{rate:,}"
        shown.append(Figure(f"pulsar-dispatcher, {int(lanes):,} topics", text))
    for lanes, ratio in result["ratio_to_peer"].items():
        name = f"ratio to pulsar-dispatcher, {int(lanes):,} lanes"
        is_goal = int(lanes) == _FEW
        shown.append(at_least(name, ratio, 10) if is_goal else Figure(name, f"{ratio:g}"))
    return [
        *shown,
        exactly("lost", result["lost"], 0),
        exactly("duplicates", result["duplicates"], 0),
    ]


def plot(result: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing(figsize=(7, 4), layout="constrained")
    axes = drawing.subplots()
    for name, rates in (("pushlane", result["rates"]), ("pulsar-dispatcher", result["peer_rates"])):
        known = {int(lanes): rate for lanes, rate in rates.items() if not isinstance(rate, str)}
        if known:
            axes.plot(list(known), list(known.values()), marker="o", label=name)
    axes.set(xscale="log", xlabel="lanes", ylabel="pushes a second", ylim=(0, None))
    axes.set_xticks([int(lanes) for lanes in result["rates"]], result["rates"])
    axes.legend()
    drawing.savefig(path, dpi=120)
