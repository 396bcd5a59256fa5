"""What a newcomer meets: from a clone to a campaign's results, and how long one push takes.

The first is `bench.from_clone`, embedded alone. The second times a one-time code from
`Producer.push` to the receiver, beside two backlogs. A high and a low task wait at a webhook that
takes 2,500/s (50 slots, an answer after 20 ms), and an application pushes 20 a second, without a
spool. On Pulsar the same push is sent raw through its client afterwards, to a consumer that waits.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench import from_clone
from bench.backends import backend_settings
from bench.backlog import push_of, write_task
from bench.dispatching import dispatching
from bench.fast_receiver import fast_receiver
from bench.figures import Figure, at_most, say
from dev.receiver import Follower
from pushlane.backends.backend import connect
from pushlane.core.errors import PushlaneError
from pushlane.core.push import encode
from pushlane.core.task import Level
from pushlane.producers.producer import Producer
from pushlane.settings import Settings

_SLOTS = 50
_TAKES_S = 0.02
_PER_S = 20
_WARM = 20
_LOOK_S = 0.05
_PATIENCE_S = 60.0
_RAW = "task-raw"
_P50_MS, _P99_MS = 12.0, 40.0
_P50_MORE_MS, _P99_MORE_MS = 10.0, 25.0


_PARTS = ("clone", "otp")
RUNS = (
    ("--parts", "clone"),
    ("--broker", "embedded", "--parts", "otp"),
    ("--broker", "pulsar", "--parts", "otp"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--broker", choices=("embedded", "pulsar"), default="embedded")
    parser.add_argument("--parts", nargs="+", choices=_PARTS, default=_PARTS)
    parser.add_argument("--pushes", type=int, default=600, help="one-time codes (default 600)")
    parser.add_argument("--backlog", type=int, default=100_000, help="pushes of each other task")


def run(options: argparse.Namespace) -> dict[str, Any]:
    result = {"broker": options.broker}
    if "clone" in options.parts and options.broker == "embedded":
        with tempfile.TemporaryDirectory(prefix="pushlane-clone-") as folder:
            result |= from_clone.measure(Path(folder))
    return result | _pushes(options) if "otp" in options.parts else result


def _pushes(options: argparse.Namespace) -> dict[str, Any]:
    with (
        backend_settings(options.broker, slots=_SLOTS) as settings,
        tempfile.TemporaryDirectory(prefix="pushlane-first-hour-") as folder,
    ):
        asyncio.run(_fill(settings, options.backlog))
        took = _otp(settings, Path(folder) / "webhook.jsonl", options.pushes)
        result = {"otp_pushes": len(took), **_named("otp", took)}
        if options.broker == "pulsar":
            result |= _named("raw", _raw(settings, options.pushes))
    return result


def figures(result: dict[str, Any]) -> list[Figure]:
    parts = from_clone.figures(result) if "commands" in result else []
    return [*parts, *_figures_of_pushes(result)] if "otp_pushes" in result else parts


def _figures_of_pushes(result: dict[str, Any]) -> list[Figure]:
    raw_p50, raw_p99 = result.get("raw_p50_ms"), result.get("raw_p99_ms")
    if raw_p50 is None or raw_p99 is None:
        return [
            at_most("from `push` to the receiver, ms (median)", result["otp_p50_ms"], _P50_MS),
            at_most("the same, 99 of 100", result["otp_p99_ms"], _P99_MS),
        ]
    more_p50, more_p99 = result["otp_p50_ms"] - raw_p50, result["otp_p99_ms"] - raw_p99
    return [
        Figure("from `push` to the receiver, ms (median)", f"{result['otp_p50_ms']:g}"),
        at_most("over a raw push through Pulsar", round(more_p50, 1), _P50_MORE_MS),
        Figure("from `push` to the receiver, ms (99 of 100)", f"{result['otp_p99_ms']:g}"),
        at_most("over a raw push through Pulsar", round(more_p99, 1), _P99_MORE_MS),
    ]


def _named(name: str, took_ms: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(took_ms, n=100)
    return {f"{name}_p50_ms": round(cuts[49], 1), f"{name}_p99_ms": round(cuts[98], 1)}


async def _fill(settings: Settings, backlog: int) -> None:
    async with connect(settings) as backend:
        for level in (Level.HIGH, Level.LOW):
            say(f"writing {backlog:,} {level} pushes")
            await write_task(backend, level, backlog)
        await backend.broker.open_lane(_RAW)


def _otp(settings: Settings, log: Path, pushes: int) -> list[float]:
    """Return how long each push took to the receiver's log, in milliseconds."""
    takes_s = {level.value: _TAKES_S for level in Level}
    with (
        fast_receiver(log, takes_s) as receiver,
        dispatching(settings, f"webhook:{receiver.url}") as dispatcher,
    ):
        webhook = Follower(log)
        _until(webhook, lambda: webhook.counts.total() > 0, lambda: dispatcher.has_ended)
        pushed_s: dict[int, float] = {}
        with Producer("otp", level=Level.HIGH, settings=settings) as producer:
            say(f"pushing {pushes:,} one-time codes")
            for _ in _ticks(pushes + _WARM):
                at_s = time.time()
                push_id = producer.push("device-1", title="Code", body="123456")
                pushed_s[int(push_id.rpartition("-")[2])] = at_s
            task_id = producer.task_id
        _until(
            webhook,
            lambda: webhook.counts[task_id] >= pushes + _WARM,
            lambda: dispatcher.has_ended,
        )
    arrived = {one.seq: one.at_s for one in reversed(webhook.arrivals) if one.task == task_id}
    left = sum(one.task != task_id for one in webhook.arrivals)
    say(f"{left:,} pushes of the backlogs went meanwhile")
    return [(arrived[seq] - at_s) * 1000 for seq, at_s in pushed_s.items() if seq > _WARM]


def _raw(settings: Settings, pushes: int) -> list[float]:
    """Return how long the same push takes from a bare client to a consumer that waits for it."""
    import pulsar

    say(f"sending {pushes:,} raw pushes")
    topic = f"persistent://{settings.namespace}/{_RAW}"
    client = pulsar.Client(settings.broker)
    try:
        consumer = client.subscribe(topic, "pushlane", consumer_type=pulsar.ConsumerType.Shared)
        sender = client.create_producer(topic, batching_enabled=False)
        took: list[float] = []
        for number in _ticks(pushes + _WARM):
            at_s = time.time()
            sender.send(encode(push_of(_RAW, number + 1)))
            message = consumer.receive(timeout_millis=round(_PATIENCE_S * 1000))
            took.append((time.time() - at_s) * 1000)
            consumer.acknowledge(message)
    finally:
        client.close()
    return took[_WARM:]


def _ticks(count: int) -> Iterator[int]:
    """Yield so many numbers, `_PER_S` a second."""
    began_s = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began_s + number / _PER_S - time.monotonic()))
        yield number


def _until(log: Follower, is_there: Callable[[], bool], has_ended: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + _PATIENCE_S
    log.read()
    while not is_there():
        if has_ended() or time.monotonic() > deadline_s:
            raise PushlaneError(f"{log.counts.total()} pushes arrived, and then no more in time")
        time.sleep(_LOOK_S)
        log.read()
