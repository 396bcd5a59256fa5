"""What others reach on as many pushes: `pulsar-perf consume`, and PyPI's pulsar-dispatcher.

Each reads through a subscription of its own from the first message, acks, and does nothing else.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean

import pulsar

from bench.backlog import BUNDLE, push_of
from bench.counting import Mark, steady_rate
from bench.peers.programs import APPS
from bench.peers.venv import MissingPeer, peer_python
from dev.stack import default_cache_dir
from dev.stack.local import check_java, pulsar_home
from pushlane.backends.backend import connect
from pushlane.core.errors import UserError
from pushlane.core.push import encode
from pushlane.settings import Settings

_SEND_TIMEOUT_MS = 120_000  # a pause of a machine that does much else ends no benchmark
_TOPICS_AT_ONCE = 24
_EVERY_SECOND = re.compile(
    r"\[(persistent://\S+)\] .* Consume throughput received: ([\d.]+) msgs/s"
)
_PRODUCED = re.compile(r"Throughput produced: .* ---\s+([\d.]+) msg/s")
_PRODUCE_S = 32
_COLD_S = 2
_PERF_S = 120.0
_PEER_S = 20.0
_PEER_STARTS_S = 60.0
_LAST_CHARACTERS = 300


def write_topics(settings: Settings, count: int, pushes: int) -> list[str]:
    """So many topics with as many pushes each as one of our tasks has, a message each, in batches
    of 32: what others read.
    """
    topics = _opened(settings, count)
    client = pulsar.Client(settings.broker, logger=None)
    try:
        for start in range(0, count, _TOPICS_AT_ONCE):
            _fill(client, topics[start : start + _TOPICS_AT_ONCE], pushes)
    finally:
        client.close()
    return topics


def _opened(settings: Settings, count: int) -> list[str]:
    run = secrets.token_hex(4)
    names = [f"rival-{run}-{number}" for number in range(count)]
    asyncio.run(_open(settings, names))
    return [f"persistent://{settings.namespace}/{name}" for name in names]


async def _open(settings: Settings, names: Sequence[str]) -> None:
    async with connect(settings) as backend:
        for start in range(0, len(names), _TOPICS_AT_ONCE):
            some = names[start : start + _TOPICS_AT_ONCE]
            await asyncio.gather(*map(backend.broker.open_lane, some))


def write_in_turn(settings: Settings, count: int, pushes: int) -> tuple[list[str], float]:
    """The same topics, but a push to each of all in turn; the seconds until all were durable."""
    topics = _opened(settings, count)
    client = pulsar.Client(settings.broker, logger=None)
    try:
        return topics, _fill(client, topics, pushes)
    finally:
        client.close()


def _fill(client: pulsar.Client, topics: Sequence[str], pushes: int) -> float:
    """Return the seconds from the first push until all are durable.

    Raises PulsarException when one of them is not.
    """
    producers = [
        client.create_producer(
            topic,
            batching_enabled=True,
            batching_max_messages=BUNDLE,
            max_pending_messages=10_000,
            block_if_queue_full=True,
            send_timeout_millis=_SEND_TIMEOUT_MS,
        )
        for topic in topics
    ]
    began_s = time.perf_counter()
    for seq in range(1, pushes + 1):
        body = encode(push_of("rival", seq))
        for producer in producers:
            producer.send_async(body, _sent)
    for producer in producers:
        producer.flush()
    took_s = time.perf_counter() - began_s
    for producer in producers:
        producer.close()
    return took_s


def _sent(result: pulsar.Result, message_id: object) -> None:
    """Ignore the answer: `flush` raises when something was not sent."""


def perf_rate(settings: Settings, names: Sequence[str], messages: int) -> float:
    """Messages a second over all topics, once its JVM is warm.

    Raises:
        MissingPeer: there is no Java, no Pulsar to take it from, or it failed.
    """
    home = _perf_home()
    queue = settings.prefetch
    options = f"-u {settings.broker} -i 1 -q {queue} -p {queue * len(names)} -st Shared -ss perf"
    options += f" -sp Earliest --batch-index-ack -t {len(names)} -m {messages}"
    command = [str(home / "bin" / "pulsar-perf"), "consume", *options.split(), *names]
    rate = steady_sum(_said(command, "", _PERF_S).splitlines())
    if not rate:
        raise MissingPeer("pulsar-perf was done before its JVM was warm")
    return rate


def perf_produce_rates(settings: Settings, size: int) -> tuple[float, float]:
    """Messages a second that `pulsar-perf produce` puts on one topic, in batches like our bundles.

    In its first ten seconds, in which its JVM gets warm, and after them.

    Raises:
        MissingPeer: there is no Java, no Pulsar to take it from, or it failed.
    """
    home = _perf_home()
    topic = asyncio.run(_new_topic(settings))
    options = f"produce -u {settings.broker} -r 10000000 -s {size} -bm {settings.batch}"
    options += f" -time {_PRODUCE_S} {topic}"
    said = _said([str(home / "bin" / "pulsar-perf"), *options.split()], "", _PERF_S)
    rates = [float(rate) for rate in _PRODUCED.findall(said)]
    if len(rates) < 2:
        raise MissingPeer("pulsar-perf told no rate")
    return rates[0], mean(rates[1:])


async def _new_topic(settings: Settings) -> str:
    lane = f"perf-{secrets.token_hex(4)}"
    async with connect(settings) as backend:
        await backend.broker.open_lane(lane)
    return f"persistent://{settings.namespace}/{lane}"


def _perf_home() -> Path:
    try:
        check_java()
        return pulsar_home(default_cache_dir(), lambda _: None)
    except UserError as error:
        raise MissingPeer(str(error)) from error


def steady_sum(lines: Iterable[str]) -> float:
    """The rates of all topics together: each without its first seconds, and its last."""
    by_topic: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        if found := _EVERY_SECOND.search(line):
            by_topic[found[1]].append(float(found[2]))
    return sum(mean(rates[_COLD_S:-1]) for rates in by_topic.values() if len(rates) > _COLD_S + 1)


def peer_rate(settings: Settings, names: Sequence[str], messages: int, queue: int = 1) -> float:
    """Messages a second of pulsar-dispatcher: of so many, or of those of 20 s.

    A receiver queue of 1 is what it uses unless it is told otherwise.

    Raises:
        MissingPeer: it cannot be installed, or it failed.
    """
    order = {
        "url": settings.broker,
        "topics": list(names),
        "slots": settings.slots,
        "queue": queue,
        "subscription": f"peer-{queue}",
        "messages": messages,
        "seconds": _PEER_S,
    }
    command = [str(peer_python("pulsar-dispatcher")), str(APPS / "pulsar_dispatcher_rate.py")]
    said = _said(command, json.dumps(order), _PEER_S + _PEER_STARTS_S)
    marks = [Mark(*mark) for mark in json.loads(said.splitlines()[-1])]
    handled = marks[-1].delivered
    return steady_rate(marks, handled // 10, handled * 9 // 10)


def _said(command: list[str], given: str, timeout_s: float) -> str:
    """What a rival printed; subprocess.run kills it when we are told to stop."""
    try:
        ended = subprocess.run(
            command,
            input=given,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MissingPeer(f"not done after {timeout_s:g} s") from error
    if ended.returncode:
        last = " ".join((ended.stderr or ended.stdout)[-_LAST_CHARACTERS:].split())
        raise MissingPeer(f"it ended with exit code {ended.returncode}: {last}")
    return ended.stdout
