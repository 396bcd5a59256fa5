"""What the number of lanes costs: one dispatcher with a sink that does nothing, and the peer.

The same number of pushes is spread over ever more tasks, each on a lane of its own. With 64 a lane
that measures how lanes begin and end; so a second series has as many pushes or more, and at least
512 a lane (`--a-lane`). Embedded: also 100,000 tasks of one push, which share the pool's
lanes. Rates and the CPU time a push are of the part that begins when every task was seen once:
opening that many lanes is not in them. Levels share equally. `--broker kafka` is another series:
Kafka beside Pulsar and pushlane on it, in bench/kafka_topics.py.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import kafka_topics
from bench.backends import backend_settings
from bench.backlog import write_tasks
from bench.drained import Drained, drained
from bench.figures import Figure, at_least, at_most, exactly, say
from bench.peers.venv import MissingPeer
from bench.rivals import peer_rate, write_topics
from bench.singles import write_singles
from pushlane.backends.backend import connect
from pushlane.core.errors import BadInput
from pushlane.core.task import Weights
from pushlane.settings import Settings

RUNS = (("--broker", "pulsar", "--full"), ("--broker", "embedded"), ("--broker", "kafka"))
_LANES = (64, 256, 1_024, 4_096)
_OF_KAFKA = (64, 128, 256, 1_024)
_FEW = 1_024
_OF_THE_PEER = 4
_SINGLES = 100_000


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar", "kafka"), default="pulsar")
    parser.add_argument("--pushes", type=int, default=262_144, help="in all (default 262144)")
    parser.add_argument(
        "--a-lane", type=int, default=512, help="at least, in a second series; 0: none (512)"
    )
    parser.add_argument(
        "--singles", type=int, default=_SINGLES, help="embedded: tasks of one push; 0: none"
    )
    parser.add_argument(
        "--full", action="store_true", help="Pulsar: 4,096 lanes too, which takes four minutes more"
    )
    beside = parser.add_argument_group("Kafka beside Pulsar (--broker kafka)")
    beside.add_argument(
        "--topics", type=int, nargs="+", default=_OF_KAFKA, help="how many (64 128 256 1024)"
    )
    beside.add_argument(
        "--records", type=int, default=1_048_576, help="in all, over all topics (default 1048576)"
    )
    beside.add_argument("--rounds", type=int, default=3, help="of which the median counts")


def run(options: argparse.Namespace) -> dict[str, Any]:
    if options.broker == "kafka":
        return kafka_topics.run(options)
    counts = _LANES if options.full or options.broker == "embedded" else _LANES[:-1]
    _require_some(options, counts[-1])
    ours: dict[int, Drained] = {}
    deep: dict[int, Drained] = {}
    peers: dict[int, float | str] = {}
    for lanes in counts:
        each = options.pushes // lanes
        ours[lanes], peer = _measured(options.broker, lanes, each)
        if peer is not None:
            peers[lanes] = peer
        if each >= options.a_lane:
            deep[lanes] = ours[lanes]
        else:
            deep[lanes], _ = _measured(options.broker, lanes, options.a_lane, with_peer=False)
    singles = _singles(options.singles) if options.broker == "embedded" else None
    return {
        "broker": options.broker,
        "pushes": options.pushes,
        "a_lane": options.a_lane,
        "singles": options.singles,
        **judge(ours, peers, singles, deep if options.a_lane else {}),
    }


def _require_some(options: argparse.Namespace, lanes: int) -> None:
    if options.pushes < lanes:
        raise BadInput(f"--pushes {options.pushes} are not one a lane: give {lanes:,} or more")
    if options.a_lane < 0:
        raise BadInput(f"--a-lane {options.a_lane} cannot be: give 0 or more")


def _measured(
    broker: str, lanes: int, pushes: int, *, with_peer: bool = True
) -> tuple[Drained, float | str | None]:
    """Drain so many lanes, and the peer's, on a backend that has the lanes of nobody else."""
    peer = None
    with backend_settings(broker) as settings:
        totals = _written(settings, lanes, pushes)
        if with_peer and broker == "pulsar" and lanes <= _FEW:
            peer = _peer(settings, lanes, pushes)
        ours = drained(settings, totals)
    say(f"  pushlane {ours.rate:,}/s, {ours.cpu_us} us of CPU a push")
    return ours, peer


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


def _singles(tasks: int) -> Drained | None:
    """Tasks of one push each."""
    if not tasks:
        return None
    with backend_settings("embedded") as settings:
        say(f"{tasks:,} tasks of one push: writing")
        one = drained(settings, asyncio.run(write_singles(settings, tasks)))
    say(f"  pushlane {one.rate:,}/s")
    return one


def judge(
    ours: Mapping[int, Drained],
    peers: Mapping[int, float | str],
    singles: Drained | None,
    deep: Mapping[int, Drained],
) -> dict[str, Any]:
    """A `drop` is from the fewest lanes to the most, as a part of the rate.

    What is `deep` has at least so many pushes a lane; a run that is in both series is one.
    """
    further = [one for lanes, one in deep.items() if one is not ours[lanes]]
    runs = [*ours.values(), *further, *([singles] if singles else [])]
    return {
        **_series(ours, ""),
        **(_series(deep, "deep_") if deep else {}),
        "peer_rates": {str(lanes): rate for lanes, rate in peers.items()},
        "ratio_to_peer": {
            str(lanes): round(ours[lanes].rate / rate, 1)
            for lanes, rate in peers.items()
            if isinstance(rate, float | int) and rate
        },
        "singles_rate": singles.rate if singles else None,
        "singles_cpu_us": singles.cpu_us if singles else None,
        "lost": sum(one.lost for one in runs),
        "duplicates": sum(one.duplicates for one in runs),
    }


def _series(ours: Mapping[int, Drained], prefix: str) -> dict[str, Any]:
    first, last = ours[min(ours)].rate, ours[max(ours)].rate
    return {
        f"{prefix}rates": {str(lanes): one.rate for lanes, one in ours.items()},
        f"{prefix}cpu_us": {str(lanes): one.cpu_us for lanes, one in ours.items()},
        f"{prefix}drop": round(1 - last / first, 3) if first else 1.0,
    }


def figures(result: dict[str, Any]) -> list[Figure]:
    if result["broker"] == "kafka":
        return kafka_topics.figures(result)
    most = max(map(int, result["rates"]))
    is_pulsar, total = result["broker"] == "pulsar", result["pushes"]
    shown = [
        *_shown(result, "", 0),
        at_most(
            f"drop from 64 to {most:,} lanes, {total:,} pushes in all",
            result["drop"],
            0.1 if is_pulsar else 0.25,
        ),
    ]
    if "deep_rates" in result:
        a_lane = result["a_lane"]
        shown += [
            *(line for line in _shown(result, "deep_", a_lane) if line not in shown),
            at_most(
                f"drop from 64 to {most:,} lanes, {a_lane:,} pushes a lane or more",
                result["deep_drop"],
                0.6 if is_pulsar else 0.45,
            ),
        ]
    if result["singles_rate"]:
        cpu = f", {result['singles_cpu_us']:g} us" if "singles_cpu_us" in result else ""
        name = f"pushes a second, {result.get('singles', _SINGLES):,} tasks of one"
        shown.append(Figure(name, f"{result['singles_rate']:,}{cpu}"))
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


def _shown(result: dict[str, Any], prefix: str, a_lane: int) -> list[Figure]:
    """Rates with the CPU time a push beside them, named by how many pushes a lane has.

    In results without a second series the CPU time is of a whole run, and not shown.
    """
    cpu_us, total = result[f"{prefix}cpu_us"], result["pushes"]
    is_of_the_rate = "a_lane" in result
    return [
        Figure(
            f"pushes a second, {int(lanes):,} lanes of {max(a_lane, total // int(lanes)):,}",
            f"{rate:,}, {cpu_us[lanes]:g} us" if is_of_the_rate else f"{rate:,}",
        )
        for lanes, rate in result[f"{prefix}rates"].items()
    ]


def plot(result: dict[str, Any], path: Path) -> None:
    if result["broker"] == "kafka":
        kafka_topics.plot(result, path)
        return
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing(figsize=(7, 4), layout="constrained")
    axes = drawing.subplots()
    lines = {"pushlane": result["rates"], "pulsar-dispatcher": result["peer_rates"]}
    if "deep_rates" in result:
        lines[f"pushlane, {result['a_lane']:,} a lane or more"] = result["deep_rates"]
    for name, rates in lines.items():
        known = {int(lanes): rate for lanes, rate in rates.items() if not isinstance(rate, str)}
        if known:
            axes.plot(list(known), list(known.values()), marker="o", label=name)
    axes.set(xscale="log", xlabel="lanes", ylabel="pushes a second", ylim=(0, None))
    axes.set_xticks([int(lanes) for lanes in result["rates"]], result["rates"])
    axes.legend()
    drawing.savefig(path, dpi=120)
