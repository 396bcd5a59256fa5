"""The same records over ever more topics of one partition: Kafka, Pulsar and pushlane on it.

For each number of topics both brokers are new; after a round that warms them up, each does the
same in rounds, of which the median counts. Kafka's own ProducerPerformance writes to one topic
only, which has as many partitions then.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench import kafka_rates
from bench.backends import anew, backend_settings
from bench.backlog import write_tasks
from bench.drained import drained
from bench.figures import Figure, exactly, say
from bench.kafka import delete_topics, kafka_broker, make_topics
from bench.peers.venv import MissingPeer
from bench.resident import resident_kib
from bench.rivals import perf_rate, write_in_turn
from pushlane.backends.backend import connect
from pushlane.core.errors import BadInput
from pushlane.core.task import Weights
from pushlane.settings import Settings

_WARM_UP = 4  # a part of the records
_LEAST = 2 * _WARM_UP
SYSTEMS = {
    "kafka_producer": "Kafka, one confluent-kafka producer, a record to each topic in turn",
    "kafka_by_topic": "Kafka, one confluent-kafka producer, topic after topic",
    "kafka_perf_producer": "Kafka, ProducerPerformance, to each partition of one topic in turn",
    "kafka_perf_consumer": "Kafka, ConsumerPerformance on all topics",
    "kafka_consumer": "Kafka, one confluent-kafka consumer on all topics",
    "pulsar_producers": "Pulsar, a producer a topic in one client, a record to each in turn",
    "pulsar_perf_consumer": "Pulsar, pulsar-perf consume on all topics",
    "pushlane_written": "pushlane on Pulsar, written, with making tasks and lanes",
    "pushlane": "pushlane on Pulsar, dispatched",
}

Rates = dict[str, float | str]
"""Records a second by the key of a system; a reason where there is none."""


class Round(NamedTuple):
    """The figures of one round; `memory` is in MiB, while Kafka has all records."""

    rates: Rates
    memory: Mapping[str, int]
    lost: int
    duplicates: int


def run(options: argparse.Namespace) -> dict[str, Any]:
    _require_some(options)
    measured = {topics: _measured(topics, options) for topics in sorted(set(options.topics))}
    return {
        "broker": "kafka",
        "records": options.records,
        "record_bytes": len(kafka_rates.record(1)),
        "rounds": options.rounds,
        **judge(measured),
    }


def _require_some(options: argparse.Namespace) -> None:
    most, least = max(options.topics), min(options.topics)
    if least < 1:
        raise BadInput(f"--topics {least} cannot be: give 1 or more")
    if options.rounds < 1:
        raise BadInput(f"--rounds {options.rounds} cannot be: give 1 or more")
    if options.records < _LEAST * most:
        raise BadInput(
            f"--records {options.records} are too few for {most:,} topics: "
            f"give {_LEAST * most:,} or more"
        )


def _measured(topics: int, options: argparse.Namespace) -> list[Round]:
    each = options.records // topics
    with (
        tempfile.TemporaryDirectory(prefix="pushlane-kafka-") as name,
        kafka_broker(folder := Path(name)) as servers,
        backend_settings("pulsar") as settings,
    ):
        say(f"{topics:,} topics of {each:,} records: warming up")
        _round(servers, folder, settings, topics, each // _WARM_UP)
        rounds = []
        for number in range(1, options.rounds + 1):
            say(f"{topics:,} topics of {each:,} records: round {number}")
            rounds.append(_round(servers, folder, settings, topics, each))
        return rounds


def _round(servers: str, folder: Path, settings: Settings, topics: int, each: int) -> Round:
    rates, memory, missing = _kafka(servers, folder, topics, each)
    of_pulsar, lost, duplicates = _pulsar(anew(settings), topics, each)
    rates |= of_pulsar
    for system, rate in rates.items():
        say(f"  {system}: {rate if isinstance(rate, str) else f'{rate:,.0f}/s'}")
    return Round(rates, memory, missing + lost, duplicates)


def _kafka(servers: str, folder: Path, topics: int, each: int) -> tuple[Rates, dict[str, int], int]:
    """All that is done with Kafka, its memory, and how many records its consumer did not get."""
    rates: Rates = {}
    prefix = f"turn-{secrets.token_hex(4)}-"
    names = [f"{prefix}{number}" for number in range(topics)]
    make_topics(servers, names)
    left = topics * (each - 1)  # the first of each topic is written before the clock runs
    turns = kafka_rates.in_turn(names, each - 1)
    rates["kafka_producer"] = left / kafka_rates.produced_s(servers, names, turns)
    rates["kafka_perf_consumer"] = _or_why(
        lambda: kafka_rates.perf_consumed(servers, prefix, topics * each)
    )
    rates["kafka_consumer"], lost = kafka_rates.consumed(servers, names, topics * each)
    memory = _memory(folder)
    delete_topics(servers, names)

    names = [f"topic-{secrets.token_hex(4)}" for _ in range(topics)]
    make_topics(servers, names)
    one_by_one = kafka_rates.by_topic(names, each - 1)
    rates["kafka_by_topic"] = left / kafka_rates.produced_s(servers, names, one_by_one)
    delete_topics(servers, names)

    name = f"perf-{secrets.token_hex(4)}"
    make_topics(servers, [name], topics)
    rates["kafka_perf_producer"] = _or_why(
        lambda: kafka_rates.perf_produced(servers, name, topics * each)
    )
    delete_topics(servers, [name])
    return rates, memory, lost


def _pulsar(settings: Settings, topics: int, each: int) -> tuple[Rates, int, int]:
    """Measure Pulsar and pushlane on it; return also how many pushes that lost, and sent twice."""
    rates: Rates = {}
    began_s = time.perf_counter()
    totals = asyncio.run(_written(settings, topics, each))
    rates["pushlane_written"] = topics * each / (time.perf_counter() - began_s)
    names, took_s = write_in_turn(settings, topics, each)
    rates["pulsar_producers"] = topics * each / took_s
    rates["pulsar_perf_consumer"] = _or_why(lambda: perf_rate(settings, names, topics * each))
    ours = drained(settings, totals)
    return rates | {"pushlane": ours.rate}, ours.lost, ours.duplicates


async def _written(settings: Settings, topics: int, each: int) -> dict[str, int]:
    async with connect(settings) as backend:
        await backend.registry.set_weights(Weights(1, 1, 1))
        return await write_tasks(backend, topics, each)


def _or_why(measure: Callable[[], float]) -> float | str:
    try:
        return measure()
    except MissingPeer as missing:
        return f"not measured: {missing.reason}"


def _memory(folder: Path) -> dict[str, int]:
    """Return the MiB of Kafka's process, of its records on the disk, and of the page cache."""
    pid = int((folder / "kafka.pid").read_text().split()[0])
    heap = re.search(r"-Xmx(\d+)m", Path(f"/proc/{pid}/cmdline").read_text())
    assert heap is not None
    files = (file.stat() for file in (folder / "kafka" / "data").rglob("*") if file.is_file())
    cached = next(
        int(line.split()[1])
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("Cached:")
    )
    return {
        "kafka_heap_mib": int(heap[1]),
        "kafka_resident_mib": resident_kib(pid) // 1024,
        "kafka_disk_mib": sum(file.st_blocks for file in files) * 512 // 2**20,
        "page_cache_mib": cached // 1024,
    }


def judge(measured: Mapping[int, Sequence[Round]]) -> dict[str, Any]:
    """Medians of the rounds; a `drop` is from the fewest topics to the most, as a part."""
    rates = {
        system: {
            str(topics): _middle([one.rates[system] for one in rounds])
            for topics, rounds in measured.items()
        }
        for system in SYSTEMS
    }
    everything = [one for rounds in measured.values() for one in rounds]
    return {
        "rates": rates,
        "drop": {system: _drop(list(of.values())) for system, of in rates.items()},
        "memory": {str(topics): dict(rounds[-1].memory) for topics, rounds in measured.items()},
        "lost": sum(one.lost for one in everything),
        "duplicates": sum(one.duplicates for one in everything),
    }


def _middle(rates: Sequence[float | str]) -> float | str:
    """The median of the rounds in which there was a rate, or why there never was one."""
    known = [rate for rate in rates if not isinstance(rate, str)]
    return round(median(known)) if known else rates[0]


def _drop(rates: Sequence[float | str]) -> float | None:
    first, last = rates[0], rates[-1]
    if isinstance(first, str) or isinstance(last, str) or not first:
        return None
    return round(1 - last / first, 3)


def figures(result: dict[str, Any]) -> list[Figure]:
    """A line a system, with its rates in the order of the numbers of topics."""
    counts = " / ".join(f"{int(topics):,}" for topics in result["memory"])
    shown = [
        Figure(f"{name}: records a second, {counts} topics", _shown(result, system))
        for system, name in SYSTEMS.items()
    ]
    memory = result["memory"].values()
    held = {
        "Kafka's heap, MiB at most": "kafka_heap_mib",
        "Kafka's process, MiB resident": "kafka_resident_mib",
        "Kafka's records on the disk, MiB": "kafka_disk_mib",
        "page cache of the machine, MiB": "page_cache_mib",
    }
    for name, key in held.items():
        shown.append(Figure(name, " / ".join(f"{one[key]:,}" for one in memory)))
    return [
        *shown,
        exactly("lost", result["lost"], 0),
        exactly("duplicates", result["duplicates"], 0),
    ]


def _shown(result: dict[str, Any], system: str) -> str:
    rates = result["rates"][system].values()
    shown = " / ".join(rate if isinstance(rate, str) else f"{rate:,}" for rate in rates)
    drop = result["drop"][system]
    return shown if drop is None else f"{shown}; drop {drop:g}"


def plot(result: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure as Drawing

    drawing = Drawing(figsize=(8, 6), layout="constrained")
    axes = drawing.subplots()
    for system, rates in result["rates"].items():
        known = {int(topics): rate for topics, rate in rates.items() if not isinstance(rate, str)}
        if known:
            axes.plot(list(known), list(known.values()), marker="o", label=SYSTEMS[system])
    axes.set(xscale="log", yscale="log", xlabel="topics", ylabel="records a second")
    counts = list(result["memory"])
    axes.set_xticks([int(topics) for topics in counts], counts)
    drawing.legend(loc="outside lower center", fontsize="x-small", ncols=2)
    drawing.savefig(path, dpi=120)
