"""Records of a Kafka topic that become pushes: rate, lateness at 1,000/s, and memory.

A broker of one node runs on the same machine. The rate is that of one process, with a mapping of
fields, from its first push to the last of all records; `ratio` is that over the rate of `submit`
with the same rows, beside the idle broker. Lateness goes from when the broker has appended a record
(LogAppendTime) to when its push is on its lane; of records that come together the first counts for
all. Who sends them is a process of its own. Memory is that of `pushlane ingest`.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import uvloop
from confluent_kafka import Producer

from bench import ingest_memory
from bench.backends import anew, backend_settings, environment
from bench.figures import Figure, at_most, say
from bench.kafka import kafka_broker, make_topics
from pushlane.backends.backend import Backend, connect
from pushlane.core.errors import PushlaneError
from pushlane.core.task import Level
from pushlane.ingest.bad_records import BadRecordFile
from pushlane.ingest.ingest import Ingest
from pushlane.ingest.kafka import KafkaSource
from pushlane.ingest.kafka_topic import Place
from pushlane.ingest.mapping import compiled
from pushlane.model.streams import Stream
from pushlane.settings import Settings

RUNS: tuple[tuple[str, ...], ...] = ((),)
_MAPPING = compiled({"recipient": "recipient", "title": "title", "body": "body"}, "bench")
_BODY = "x" * 140  # which makes records of 200 bytes
_APPENDED = {"message.timestamp.type": "LogAppendTime"}
_PARTS = ("rate", "lag", "memory")
_RATE, _RATIO, _LATE_MS = 30_000, 0.7, 100
_SLOW_PER_S = 1_000
_SLOW_LINGER_MS = 5
_WARM = 5_000
_LOOK_S = 0.005
_ASK_S = 60.0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", nargs="+", choices=_PARTS, default=_PARTS)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--runs", type=int, default=3, help="of which the median counts")
    parser.add_argument("--slow-s", type=float, default=30.0, help="seconds at 1,000 a second")
    parser.add_argument("--memory-records", type=int, default=10_000_000)


def run(options: argparse.Namespace) -> dict[str, Any]:
    result = {"load_before": round(os.getloadavg()[0], 1), "partitions": options.partitions}
    with (
        tempfile.TemporaryDirectory(prefix="pushlane-ingest-") as folder,
        kafka_broker(Path(folder)) as servers,
        backend_settings("embedded") as settings,
    ):
        if "lag" in options.parts:  # first: the disk has nothing left to write of the others
            say(f"1,000 records a second for {options.slow_s:g} s")
            place = _topic(servers, "slow", options.partitions)
            late_ms = uvloop.run(_late(anew(settings), place, options))
            for part in (50, 99):
                result[f"lag_ms_p{part}"] = late_ms[len(late_ms) * part // 100]
        if "rate" in options.parts:
            result |= _rates(settings, servers, options, Path(folder) / "rows.jsonl")
        if "memory" in options.parts:
            say(f"{options.memory_records:,} small records: sending, then ingesting")
            place = _topic(servers, "memory", options.partitions)
            _produce(place, ingest_memory.small_records(options.memory_records), options.partitions)
            result |= ingest_memory.measured(anew(settings), place, options.memory_records)
    return result


def _rates(
    settings: Settings, servers: str, options: argparse.Namespace, rows: Path
) -> dict[str, Any]:
    per_s, submit_per_s = [], []
    rows.write_bytes(b"".join(record + b"\n" for record in _records(options.records)))
    for number in range(1, options.runs + 1):
        say(f"ingesting {options.records:,} records, then submitting them: {number}")
        place = _topic(servers, f"fast-{number}", options.partitions)
        _produce(place, _records(options.records), options.partitions)
        per_s.append(uvloop.run(_ingested(anew(settings), place, options.records)))
        submit_per_s.append(options.records / _submit(anew(settings), rows))
    return {
        "records": options.records,
        "record_bytes": len(next(_records(1))),
        "records_per_s": round(median(per_s)),
        "submit_per_s": round(median(submit_per_s)),
        "ratio": round(median(a / b for a, b in zip(per_s, submit_per_s, strict=True)), 2),
    }


def _records(count: int) -> Iterator[bytes]:
    for n in range(count):
        yield b'{"recipient": "device-%07d", "title": "Sale", "body": "%s"}' % (n, _BODY.encode())


def _topic(servers: str, name: str, partitions: int) -> Place:
    make_topics(servers, [name], partitions, _APPENDED)
    return Place(servers, name)


def _produce(place: Place, records: Iterable[bytes], partitions: int) -> None:
    producer = Producer({"bootstrap.servers": place.servers, "linger.ms": 20})
    for n, record in enumerate(records):
        producer.produce(place.topic, record, partition=n % partitions)
        if n % 10_000 == 0:
            producer.flush(_ASK_S)
    if producer.flush(_ASK_S):
        raise PushlaneError("the broker did not take all records")


@asynccontextmanager
async def _ingesting(settings: Settings, place: Place) -> AsyncIterator[Ingest]:
    stream = Stream(name="bench", app="bench", level=Level.HIGH, created_at_ms=1)
    async with connect(settings) as backend:
        ingest = _ingest(backend, settings, stream, place)
        running = asyncio.create_task(ingest.run())
        try:
            yield ingest
        finally:
            ingest.stop()
            await running


def _ingest(backend: Backend, settings: Settings, stream: Stream, place: Place) -> Ingest:
    source = KafkaSource(place, "bench", {})
    bad = BadRecordFile(source.name, None)
    return Ingest(backend, settings, stream, source, _MAPPING, bad)


async def _ingested(settings: Settings, place: Place, count: int) -> float:
    """Return how many records a second become pushes, from the first ones on."""
    async with _ingesting(settings, place) as ingest:
        await _until(lambda: ingest.counted.pushes > 0)
        first, began_s = ingest.counted.pushes, time.perf_counter()
        await _until(lambda: ingest.counted.pushes >= count)
        return (count - first) / (time.perf_counter() - began_s)


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10 * _ASK_S):
        while not is_so():  # noqa: ASYNC110 - plain counts tell nobody
            await asyncio.sleep(_LOOK_S)


async def _late(settings: Settings, place: Place, options: argparse.Namespace) -> list[float]:
    """Return how late records were at 1,000 a second, in ms, sorted; the first ones left out."""
    late: list[float] = []

    class Noted:
        def add(self, seconds: float, times: int = 1) -> None:
            late.extend([round(seconds * 1000, 1)] * times)

    count = _WARM + int(_SLOW_PER_S * options.slow_s)
    own = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=own) as process:
        async with _ingesting(settings, place) as ingest:
            await _until(lambda: len(ingest.held) == options.partitions)
            sending = asyncio.get_running_loop().run_in_executor(
                process, _slowly, place, count, options.partitions
            )
            await _until(lambda: sending.done() or ingest.counted.pushes >= _WARM)
            ingest.counted.lane_s = Noted()  # type: ignore[assignment]
            await sending
            await _until(lambda: ingest.counted.pushes >= count)
    return sorted(late)


def _slowly(place: Place, count: int, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": place.servers, "linger.ms": _SLOW_LINGER_MS})
    began_s = time.perf_counter()
    for n, record in enumerate(_records(count)):
        ahead_s = n / _SLOW_PER_S - (time.perf_counter() - began_s)
        if ahead_s > 0:
            time.sleep(ahead_s)
        producer.produce(place.topic, record, partition=n % partitions)
        producer.poll(0)
    if producer.flush(_ASK_S):
        raise PushlaneError("the broker did not take all records")


def _submit(settings: Settings, rows: Path) -> float:
    """Return the seconds that `submit` takes for a file of the same records."""
    words = ["submit", str(rows), "--level", "high", "--title", "{title}", "--body", "{body}"]
    began_s = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "pushlane", *words],
        env=environment(settings),
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return time.perf_counter() - began_s


def figures(result: dict[str, Any]) -> list[Figure]:
    shown = [Figure("load of the machine before", f"{result['load_before']:g}")]
    if "ratio" in result:
        rate, ratio = result["records_per_s"], result["ratio"]
        either = rate >= _RATE or ratio >= _RATIO
        shown += [
            Figure("records/s", f"{rate:,}", f"≥ {_RATE:,}, or", either),
            Figure("of the rate of `submit`", f"{ratio:g}", f"≥ {_RATIO:g}", either),
            Figure("`submit`, pushes/s", f"{result['submit_per_s']:,}"),
        ]
    if "lag_ms_p99" in result:
        shown += [
            Figure("from Kafka to the lane at 1,000/s, ms (median)", f"{result['lag_ms_p50']:g}"),
            at_most("the same, 99 of 100", result["lag_ms_p99"], _LATE_MS),
        ]
    if "memory_growth" in result:
        shown += ingest_memory.figures(result)
    return shown
