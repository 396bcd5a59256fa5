"""How fast Spark puts a frozen audience on a lane, beside `pulsar-perf produce`.

Each round fans out the whole of an audience, exactly once; then what is on the lane is counted, and
pulsar-perf produces messages of the same size in batches of as many. The first round makes Spark's
JVM warm, as pulsar-perf's first ten seconds do, and is shown apart. `--match 10` fans out a tenth,
to see how long a rule over a large audience takes to its first push.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench.audience import write_audience
from bench.backends import anew, backend_settings
from bench.figures import Figure, at_least, at_most, exactly, say
from bench.peers.venv import MissingPeer
from bench.resident import Resident
from bench.rivals import perf_produce_rates
from pushlane.backends.backend import connect
from pushlane.core.push import decode
from pushlane.core.task import Task
from pushlane.pipeline.fanout.fan_out import fan_out
from pushlane.pipeline.fanout.request import FanoutRequest, FanoutResult
from pushlane.pipeline.session import spark_session
from pushlane.pipeline.spec import parse_spec
from pushlane.producers.request import SubmitProgress, SubmitStage
from pushlane.settings import Settings
from pushlane.wire import bodies_of

RUNS = (("--broker", "pulsar"),)
_SPEC = {
    "level": "high",
    "recipient": "token",
    "title": "Hi {name}",
    "body": "There is news from {city} for you, {name}: come and see what is new today",
    "data": ["city", "age"],
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="pulsar")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows (default 1000000)")
    parser.add_argument("--match", type=int, default=1, help="one row in so many matches the rule")
    parser.add_argument("--rounds", type=int, default=3, help="rounds; figures are their medians")
    parser.add_argument("--batch", type=int, default=32, help="pushes in a message (default 32)")
    parser.add_argument("--memory", default="2g", help="memory of Spark's driver (default 2g)")


@dataclass(frozen=True)
class Round:
    """What one fan-out came to; times are in seconds, from when Spark was up."""

    result: FanoutResult
    first_push_s: float
    whole_s: float
    push_bytes: int
    peak_rss_mb: int
    lost: int
    duplicates: int

    @property
    def rate(self) -> float:
        return self.result.published / self.result.publish_s


def run(options: argparse.Namespace) -> dict[str, Any]:
    rounds: list[Round] = []
    rivals: list[tuple[float, float]] = []
    expected = len(range(0, options.rows, options.match))
    with (
        backend_settings(options.broker, batch=options.batch) as settings,
        _audience(options) as audience,
    ):
        request = FanoutRequest(
            audience=str(audience),
            spec=parse_spec(_SPEC, "bench"),
            where=f"n % {options.match} = 0",
        )
        with spark_session("bench", request.master, driver_memory=options.memory):
            say("a cold round")
            cold = asyncio.run(_round(anew(settings), request, expected))
            for number in range(options.rounds):
                say(f"round {number + 1} of {options.rounds}")
                rounds.append(asyncio.run(_round(anew(settings), request, expected)))
                if options.broker == "pulsar":
                    rivals += _rival(settings, rounds[-1])
    return {
        "broker": options.broker,
        "rows": options.rows,
        "pushes": rounds[0].result.published,
        "batch": settings.batch,
        **judge(cold, rounds, rivals),
    }


@contextmanager
def _audience(options: argparse.Namespace) -> Iterator[Path]:
    with TemporaryDirectory(prefix="pushlane-bench-") as folder:
        say(f"writing an audience of {options.rows:,} rows")
        yield write_audience(Path(folder), options.rows)


async def _round(settings: Settings, request: FanoutRequest, expected: int) -> Round:
    began_s = time.monotonic()
    first_s: list[float] = []

    def watch(progress: SubmitProgress) -> None:
        if progress.stage is SubmitStage.PUBLISHING and progress.rows and not first_s:
            first_s.append(time.monotonic() - began_s)

    with Resident() as held:
        result = await fan_out(settings, request, watch)
    whole_s = time.monotonic() - began_s
    assert result.task is not None
    size, lost, duplicates = await _judge_lane(settings, result.task, expected)
    say(
        f"  frozen in {result.freeze_s:.1f} s, published in {result.publish_s:.1f} s: "
        f"{result.published / result.publish_s:,.0f}/s, peak {held.peak_mb:,} MB"
    )
    first = first_s[0] if first_s else whole_s
    return Round(result, first, whole_s, size, held.peak_mb, lost, duplicates)


async def _judge_lane(settings: Settings, task: Task, expected: int) -> tuple[int, int, int]:
    """Bytes of a push, and how many are missing from the lane, or there more than once."""
    total = task.total or 0
    seen = bytearray(total + 1)
    duplicates = size = 0
    async with connect(settings) as backend:
        async for messages in backend.broker.replay(task.first_lane):
            for body in (body for message in messages for body in bodies_of(message)):
                seq = decode(body).seq
                duplicates += seen[seq]
                seen[seq] = 1
                size += len(body)
        await backend.broker.drop_lane(task.first_lane, force=True)
    return size // max(1, sum(seen) + duplicates), expected - sum(seen), duplicates


def _rival(settings: Settings, ours: Round) -> list[tuple[float, float]]:
    """Its rates while cold and when warm; none when it cannot run here."""
    try:
        cold, warm = perf_produce_rates(settings, ours.push_bytes)
    except MissingPeer as missing:
        say(f"  pulsar-perf: {missing.reason}")
        return []
    say(f"  pulsar-perf produce {warm:,.0f}/s, {cold:,.0f}/s at first")
    return [(cold, warm)]


def judge(cold: Round, rounds: list[Round], rivals: list[tuple[float, float]]) -> dict[str, Any]:
    rates = [one.rate for one in rounds]
    every = [cold, *rounds]
    perf_cold, perf = [median(some) for some in zip(*rivals, strict=True)] or [0.0, 0.0]
    return {
        "rows_per_s": round(median(rates)),
        "rates": [round(rate) for rate in rates],
        "pulsar_perf_produce": round(perf) or None,
        "ratio": round(median(rates) / perf, 2) if perf else None,
        "pulsar_perf_cold": round(perf_cold) or None,
        "cold_ratio": round(cold.rate / perf_cold, 2) if perf_cold else None,
        "push_bytes": cold.push_bytes,
        "cold_rows_per_s": round(cold.rate),
        "cold_first_push_s": round(cold.first_push_s, 1),
        "cold_freeze_s": round(cold.result.freeze_s, 1),
        "freeze_s": round(median(one.result.freeze_s for one in rounds), 1),
        "first_push_s": round(median(one.first_push_s for one in rounds), 1),
        "whole_s": round(median(one.whole_s for one in rounds), 1),
        "peak_rss_mb": max(one.peak_rss_mb for one in every),
        "lost": sum(one.lost for one in every),
        "duplicates": sum(one.duplicates for one in every),
    }


def figures(result: dict[str, Any]) -> list[Figure]:
    shown = [
        Figure("rows a second, publishing", f"{result['rows_per_s']:,}"),
        Figure("the same in the first fan-out of a session", f"{result['cold_rows_per_s']:,}"),
    ]
    if result["ratio"] is not None:
        shown += [
            Figure("pulsar-perf produce, a second", f"{result['pulsar_perf_produce']:,}"),
            at_least("ratio to pulsar-perf", result["ratio"], 1.2),
            Figure("pulsar-perf produce, its first 10 s", f"{result['pulsar_perf_cold']:,}"),
            Figure("ratio of the first fan-out to that", f"{result['cold_ratio']:g}"),
        ]
    return [
        *shown,
        Figure("freezing, s", f"{result['freeze_s']:g}"),
        at_most("first push on the lane after, s", result["cold_first_push_s"], 20),
        Figure("the same in a warm session", f"{result['first_push_s']:g}"),
        Figure("whole fan-out, s", f"{result['whole_s']:g}"),
        Figure("peak memory of Spark and its workers, MB", f"{result['peak_rss_mb']:,}"),
        exactly("lost", result["lost"], 0),
        exactly("duplicates", result["duplicates"], 0),
    ]
