"""The systems that are measured, each set up as its own documentation advises for this."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path

from bench.backends import backend_settings, environment
from bench.kafka import kafka_broker, make_topics
from bench.peers import programs
from bench.peers.peer import Peer, Reweigh
from bench.peers.venv import peer_python
from bench.peers.workload import LATE, SLOTS, backlog
from dev.stack import Ports, default_cache_dir
from dev.stack.kafka import KAFKA_VERSION
from dev.stack.local import LocalWay
from dev.stack.services import free_port, redis_answers, wait_until
from pushlane.backends.backend import connect
from pushlane.backends.pulsar.reader import SUBSCRIPTION
from pushlane.core.task import Level
from pushlane.settings import Settings

_ROOT = Path(__file__).parents[2]
_REDIS_DEADLINE_S = 20.0

Opener = Callable[[Path, Path], AbstractContextManager[Peer]]


@contextmanager
def _ours(broker: str, folder: Path, log: Path) -> Iterator[Peer]:
    with backend_settings(broker, slots=SLOTS) as settings:
        yield Peer(
            version=version("pushlane"),
            feed=[sys.executable, "-m", "bench.peers.apps.ours"],
            work=[
                *(sys.executable, "-m", "pushlane", "dispatch", "--slots", str(SLOTS)),
                *("--sink", "bench.peers.apps.ours:deliver"),
            ],
            environment={**environment(settings), **_told(log), "PYTHONPATH": str(_ROOT)},
            cwd=_ROOT,
            reweigh=Reweigh.FEEDER,
            change="one call",
        )


@contextmanager
def _asynq(queues: str, folder: Path, log: Path) -> Iterator[Peer]:
    program = programs.asynq()
    with _own_redis(folder) as redis:
        yield Peer(
            version=programs.asynq_version(),
            feed=[program, "feed"],
            work=[program, "work"],
            environment={**_told(log), "PEERS_REDIS": redis, "PEERS_QUEUES": queues},
            reweigh=Reweigh.WORKER,
            change="rebuild the server",
        )


@contextmanager
def _celery(folder: Path, log: Path) -> Iterator[Peer]:
    python = peer_python("celery")
    options = ["--pool=threads", f"--concurrency={SLOTS}", "--queues=high,medium,low"]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=warning"]
    with _own_redis(folder) as redis:
        yield Peer(
            version=_pinned("celery"),
            feed=[python, "celery_app.py"],
            work=[python, "-m", "celery", "--app=celery_app", "worker", *options, *quiet],
            environment={**_told(log), "PEERS_REDIS": redis},
            cwd=programs.APPS,
            reweigh=Reweigh.NOTHING,
            change="no weights",
        )


@contextmanager
def _dramatiq(folder: Path, log: Path) -> Iterator[Peer]:
    python = peer_python("dramatiq")
    weights = folder / "weights"
    weights.write_text("6:3:1")
    options = ["--processes=1", f"--threads={SLOTS}"]
    with _own_redis(folder) as redis:
        yield Peer(
            version=_pinned("dramatiq"),
            feed=[python, "dramatiq_app.py"],
            work=[python, "-m", "dramatiq", "dramatiq_app", *options],
            environment={
                **_told(log),
                "PEERS_REDIS": redis,
                "PEERS_WEIGHTS": str(weights),
                "PATH": f"{python.parent}:{os.environ['PATH']}",  # a reload starts `python` anew
            },
            cwd=programs.APPS,
            reweigh=Reweigh.RELOAD,
            change="reload the workers (strict priorities)",
            weights_file=weights,
        )


@contextmanager
def _bullmq(folder: Path, log: Path) -> Iterator[Peer]:
    home = programs.bullmq()
    with _own_redis(folder) as redis:
        yield Peer(
            version=programs.bullmq_version(),
            feed=["node", home / "main.mjs", "feed"],
            work=["node", home / "main.mjs", "work"],
            environment={**_told(log), "PEERS_REDIS": redis},
            cwd=home,
            reweigh=Reweigh.FEEDER,
            change="job by job (strict priorities)",
        )


@contextmanager
def _pulsar_dispatcher(folder: Path, log: Path) -> Iterator[Peer]:
    python = peer_python("pulsar-dispatcher")
    with backend_settings("pulsar") as settings:
        asyncio.run(_declare(settings))
        told = {
            "PEERS_PULSAR": settings.broker,
            "PEERS_NAMESPACE": settings.namespace,
            "PEERS_SUBSCRIPTION": SUBSCRIPTION,
        }
        yield Peer(
            version=_pinned("pulsar-dispatcher"),
            feed=[python, "pulsar_dispatcher_app.py", "feed"],
            work=[python, "pulsar_dispatcher_app.py", "work"],
            environment={**_told(log), **told},
            cwd=programs.APPS,
            reweigh=Reweigh.WORKER,
            change="a new dispatcher (strict priorities)",
        )


@contextmanager
def _kafka(folder: Path, log: Path) -> Iterator[Peer]:
    with kafka_broker(folder) as servers:
        make_topics(servers, [level.value for level in Level])
        yield Peer(
            version=KAFKA_VERSION,
            feed=[sys.executable, "kafka_app.py", "feed"],
            work=[sys.executable, "kafka_app.py", "work"],
            environment={**_told(log), "PEERS_KAFKA": servers},
            cwd=programs.APPS,
            reweigh=Reweigh.WORKER,
            change="one call in the worker",
        )


async def _declare(settings: Settings) -> None:
    """A topic with its subscription for each task, since the namespace makes none by itself."""
    async with connect(settings) as backend:
        for order in [*backlog(), LATE]:
            await backend.broker.open_lane(order.task)


OURS = "pushlane"
CATALOGUE: dict[str, Opener] = {
    f"{OURS} on Pulsar": partial(_ours, "pulsar"),
    f"{OURS} embedded": partial(_ours, "embedded"),
    "asynq, a queue a level": partial(_asynq, "level"),
    "asynq, a queue a task": partial(_asynq, "task"),
    "Celery": _celery,
    "Dramatiq": _dramatiq,
    "BullMQ": _bullmq,
    "pulsar-dispatcher": _pulsar_dispatcher,
    "Kafka, a topic a level": _kafka,
}


def _told(log: Path) -> dict[str, str]:
    """What every system's programs are told."""
    tasks = [(order.task, order.level.value) for order in [*backlog(), LATE]]
    return {
        "PEERS_LOG": str(log),
        "PEERS_SLOTS": str(SLOTS),
        "PEERS_TASKS": json.dumps(tasks),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _pinned(name: str) -> str:
    pins = (Path(__file__).parent / f"requirements-{name}.txt").read_text()
    found = re.search(rf"^{re.escape(name)}==(\S+)", pins, re.MULTILINE)
    assert found is not None
    return found[1]


@contextmanager
def _own_redis(folder: Path) -> Iterator[str]:
    """A Redis with the settings that ours has, for this system alone."""
    way = LocalWay(folder, default_cache_dir())
    ports = Ports(broker=0, admin=0, redis=free_port())
    try:
        way.start_redis(ports, lambda step: None)
        wait_until(
            lambda: redis_answers(ports.urls.redis),
            what="redis",
            deadline_s=_REDIS_DEADLINE_S,
            is_running=lambda: way.is_running("redis"),
            log_tail=lambda: way.log_tail("redis"),
        )
        yield ports.urls.redis
    finally:
        way.stop(delete_data=True)
