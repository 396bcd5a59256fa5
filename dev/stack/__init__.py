"""A Pulsar and a Redis on this machine for development: start, stop, look.

Listens on 127.0.0.1 only, without passwords, with the broker settings that pushlane needs. Never
touches a service that it did not start itself.

One `up` or `down` at a time for each run folder. Either both services answer when `up` returns, or
nothing of it is left running.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import msgspec

from dev import alone
from dev.stack import docker, services
from dev.stack.docker import DockerWay
from dev.stack.kafka import KafkaProcess, kafka_answers
from dev.stack.local import LocalWay
from dev.stack.services import OnStep, Ports, Prefer, StackUrls
from pushlane.core.errors import UserError

__all__ = [
    "Ports",
    "Prefer",
    "StackUrls",
    "default_cache_dir",
    "down",
    "is_healthy",
    "status",
    "temporary",
    "up",
    "up_kafka",
]

START_DEADLINE_S = 120.0
KAFKA_PORT = 9092
Way = LocalWay | DockerWay


class StackState(msgspec.Struct, frozen=True):
    """What is kept in the run folder while a stack is up."""

    way: str
    ports: Ports


def default_cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "pushlane"


def up(
    cache_dir: Path, on_step: OnStep, *, prefer: Prefer = "auto", ports: Ports | None = None
) -> StackUrls:
    """Start both services and wait until they answer. A stack that is up already stays as it is.

    `ports` counts for a stack that is not up yet. `on_step` is told what is being done.

    Raises:
        UserError: something is missing or a port is taken; says what.
        Unreachable: a service does not come up; shows the end of its log.
    """
    with _alone(cache_dir, on_step):
        known = status(cache_dir)
        if known and is_healthy(cache_dir):
            on_step(f"already up ({known.way})")
            return known.ports.urls
        if known:
            on_step("stopping what is left of an earlier stack")
        _stop(cache_dir, delete_data=False)
        way = _choose(_ways(cache_dir), prefer, on_step)
        settled = services.settle(ports or Ports())
        try:
            _state_file(cache_dir).write_bytes(msgspec.json.encode(StackState(way.name, settled)))
            way.start(settled, on_step)
            _wait(way, settled.urls, on_step)
        except BaseException:  # Ctrl-C too
            _stop(cache_dir, delete_data=False)
            raise
        return settled.urls


def up_kafka(cache_dir: Path, on_step: OnStep, port: int = KAFKA_PORT) -> str:
    """Start a Kafka beside it, on a local Java, and wait until it answers; return HOST:PORT.

    One that runs stays as it is. Its own controller listens on the next port.

    Raises:
        UserError: something is missing or a port is taken; says what.
        Unreachable: it does not come up; shows the end of its log.
    """
    with _alone(cache_dir, on_step):
        kafka = KafkaProcess(_run_dir(cache_dir))
        if kafka.is_running("kafka"):
            on_step("Kafka is already up")
            return kafka.servers
        port, inner = services.free_ports(2) if not port else (port, port + 1)
        services.check_free({"Kafka": port, "Kafka's controller": inner})
        try:
            kafka.start(cache_dir, (port, inner), on_step)
            services.wait_until(
                partial(kafka_answers, port),
                what="kafka",
                deadline_s=START_DEADLINE_S,
                is_running=partial(kafka.is_running, "kafka"),
                log_tail=partial(kafka.log_tail, "kafka"),
            )
        except BaseException:  # Ctrl-C too
            kafka.stop(delete_data=False)
            raise
        return kafka.servers


@contextmanager
def temporary(run_dir: Path, on_step: OnStep) -> Iterator[StackUrls]:
    """A stack of local processes on free ports, gone with its data in the end.

    Raises:
        UserError: something is missing; says what.
        Unreachable: a service does not come up; shows the end of its log.
    """
    cache_dir = default_cache_dir()
    cache_dir.mkdir(parents=True, exist_ok=True)
    way = LocalWay(run_dir, cache_dir)
    settled = services.settle(Ports(broker=0, admin=0, redis=0))
    try:
        way.start(settled, on_step)
        _wait(way, settled.urls, on_step)
        yield settled.urls
    finally:
        way.stop(delete_data=True)


def down(cache_dir: Path, on_step: OnStep = lambda step: None, *, delete_data: bool) -> None:
    """Stop what `up` started. With `delete_data`, its messages and tasks go too."""
    with _alone(cache_dir, on_step):
        KafkaProcess(_run_dir(cache_dir)).stop(delete_data=delete_data)
        _stop(cache_dir, delete_data=delete_data)


def status(cache_dir: Path) -> StackState | None:
    """The stack that is meant to be up, None when there is none."""
    try:
        return msgspec.json.decode(_state_file(cache_dir).read_bytes(), type=StackState)
    except (FileNotFoundError, msgspec.DecodeError):  # none, or an `up` was killed while writing it
        return None


def is_healthy(cache_dir: Path) -> bool:
    """Whether a stack is up and both of its services answer."""
    known = status(cache_dir)
    if known is None:
        return False
    way = _ways(cache_dir)[known.way]
    checks = _checks(known.ports.urls)
    return all(way.is_running(service) and answers() for service, answers in checks.items())


def _run_dir(cache_dir: Path) -> Path:
    return cache_dir / "run"


def _state_file(cache_dir: Path) -> Path:
    return _run_dir(cache_dir) / "stack.json"


def _ways(cache_dir: Path) -> dict[str, Way]:
    run_dir = _run_dir(cache_dir)
    return {"local": LocalWay(run_dir, cache_dir), "docker": DockerWay(run_dir)}


def _alone(cache_dir: Path, on_step: OnStep) -> AbstractContextManager[None]:
    return alone(
        _run_dir(cache_dir) / "lock", lambda: on_step("waiting for another up or down to finish")
    )


def _choose(ways: dict[str, Way], prefer: Prefer, on_step: OnStep) -> Way:
    if prefer == "local":
        return ways["local"]
    reason = docker.unusable_reason(on_step)
    if not reason:
        return ways["docker"]
    if prefer == "docker":
        raise UserError(f"Docker cannot be used: {reason}; repair that, or choose `local`")
    on_step(f"without Docker: {reason}")
    return ways["local"]


def _checks(urls: StackUrls) -> dict[str, Callable[[], bool]]:
    return {
        "redis": partial(services.redis_answers, urls.redis),
        "pulsar": partial(services.pulsar_answers, urls.admin),
    }


def _wait(way: Way, urls: StackUrls, on_step: OnStep) -> None:
    for service, answers in _checks(urls).items():
        on_step(f"waiting for {service} to answer")
        services.wait_until(
            answers,
            what=service,
            deadline_s=START_DEADLINE_S,
            is_running=partial(way.is_running, service),
            log_tail=partial(way.log_tail, service),
        )


def _stop(cache_dir: Path, *, delete_data: bool) -> None:
    """Whatever was started, in whichever way; also what an `up` that was killed left behind."""
    for way in _ways(cache_dir).values():
        way.stop(delete_data=delete_data)
    _state_file(cache_dir).unlink(missing_ok=True)
