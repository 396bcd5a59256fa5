"""Records of a Kafka topic that become pushes: how many a second, and how late at 1,000/s.

A broker of one node runs on the same machine. The rate is that of one process, with a mapping of
fields, from its first push to the last of all records; `ratio` is that over the rate of `submit`
with the same rows, beside the idle broker. Lateness goes from the broker's time of a record to when
its push is on its lane.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import uvloop
from confluent_kafka import Producer

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

_MAPPING = compiled({"recipient": "recipient", "title": "title", "body": "body"}, "bench")
_BODY = "x" * 140  # which makes records of 200 bytes
_RATE, _RATIO, _LATE_MS = 30_000, 0.7, 100
_SLOW_PER_S = 1_000
_WARM_S = 5.0
_LOOK_S = 0.005
_ASK_S = 60.0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--runs", type=int, default=3, help="of which the median counts")
    parser.add_argument("--slow-s", type=float, default=30.0, help="seconds at 1,000 a second")


def run(options: argparse.Namespace) -> dict[str, Any]:
    per_s, submit_per_s = [], []
    with (
        tempfile.TemporaryDirectory(prefix="pushlane-ingest-") as folder,
        kafka_broker(Path(folder)) as servers,
        backend_settings("embedded") as settings,
    ):
        rows = Path(folder) / "rows.jsonl"
        rows.write_bytes(b"".join(record + b"\n" for record in _records(options.records)))
        for number in range(1, options.runs + 1):
            say(f"ingesting {options.records:,} records, then submitting them: {number}")
            place = _topic(servers, f"fast-{number}", options.partitions)
            _produce(place, options.records, options.partitions)
            per_s.append(uvloop.run(_ingested(anew(settings), place, options.records)))
            submit_per_s.append(options.records / _submit(anew(settings), rows))
        say(f"1,000 records a second for {options.slow_s:g} s")
        place = _topic(servers, "slow", options.partitions)
        late_ms = uvloop.run(_late(anew(settings), place, options))
    return {
        "records": options.records,
        "record_bytes": len(next(_records(1))),
        "partitions": options.partitions,
        "records_per_s": round(median(per_s)),
        "submit_per_s": round(median(submit_per_s)),
        "ratio": round(median(a / b for a, b in zip(per_s, submit_per_s, strict=True)), 2),
        "lag_ms_p50": late_ms[len(late_ms) // 2],
        "lag_ms_p99": late_ms[len(late_ms) * 99 // 100],
    }


def _records(count: int) -> Iterator[bytes]:
    for n in range(count):
        yield b'{"recipient": "device-%07d", "title": "Sale", "body": "%s"}' % (n, _BODY.encode())


def _topic(servers: str, name: str, partitions: int) -> Place:
    make_topics(servers, [name], partitions)
    return Place(servers, name)


def _produce(place: Place, count: int, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": place.servers, "linger.ms": 20})
    for n, record in enumerate(_records(count)):
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
    """Return how late records were at 1,000 a second, in ms, sorted; the first seconds left out."""
    late: list[float] = []

    class Noted:
        def add(self, seconds: float, times: int = 1) -> None:
            late.extend([round(seconds * 1000, 1)] * times)

    async with _ingesting(settings, place) as ingest:
        slow = threading.Thread(target=_slowly, args=(place, options))
        await _until(lambda: len(ingest.held) == options.partitions)
        slow.start()
        await asyncio.sleep(_WARM_S)
        ingest.counted.lane_s = Noted()  # type: ignore[assignment]
        count = int(_SLOW_PER_S * (_WARM_S + options.slow_s))
        await _until(lambda: ingest.counted.pushes >= count)
        slow.join()
    return sorted(late)


def _slowly(place: Place, options: argparse.Namespace) -> None:
    producer = Producer({"bootstrap.servers": place.servers, "linger.ms": 0})
    count = int(_SLOW_PER_S * (_WARM_S + options.slow_s))
    began_s = time.perf_counter()
    for n, record in enumerate(_records(count)):
        ahead_s = n / _SLOW_PER_S - (time.perf_counter() - began_s)
        if ahead_s > 0:
            time.sleep(ahead_s)
        producer.produce(place.topic, record, partition=n % options.partitions)
        producer.poll(0)
    producer.flush(_ASK_S)


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
    rate, ratio = result["records_per_s"], result["ratio"]
    either = rate >= _RATE or ratio >= _RATIO
    return [
        Figure("records/s", f"{rate:,}", f"≥ {_RATE:,}, or", either),
        Figure("of the rate of `submit`", f"{ratio:g}", f"≥ {_RATIO:g}", either),
        Figure("`submit`, pushes/s", f"{result['submit_per_s']:,}"),
        Figure("from Kafka to the lane at 1,000/s, ms (median)", f"{result['lag_ms_p50']:g}"),
        at_most("the same, 99 of 100", result["lag_ms_p99"], _LATE_MS),
    ]
