"""A real Pulsar and a real Redis for tests: from the environment, in containers, or as processes.

Each is started when a test first asks for it, and stopped at the end of the session. Absent, a
test is skipped with the reasons; in CI (`CI` is set) it fails. PUSHLANE_TEST_SERVICES forces one
way: env, docker or local.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import pytest

from cli.stack import Ports, default_cache_dir, docker, health
from cli.stack.broker_conf import ENVIRONMENT, container_command
from cli.stack.free_ports import settle
from cli.stack.local import LocalWay
from cli.stack.values import HOST, PULSAR_IMAGE, REDIS_IMAGE
from lanes.errors import Unreachable, UserError
from lanes.settings import Settings

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

START_DEADLINE_S = 100.0  # less than pytest's own time-out
FREE = Ports(broker=0, admin=0, redis=0)


class PulsarUrls(NamedTuple):
    """`broker` is a pulsar:// URL, `admin` an http:// one."""

    broker: str
    admin: str


class Absent(Exception):
    """This way cannot give the service here."""


Start = Callable[[ExitStack], tuple[str, ...]]


@pytest.fixture(scope="session")
def pulsar_urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarUrls]:
    run_dir = tmp_path_factory.mktemp("pulsar")
    ways: dict[str, Start] = {
        "env": lambda _: _from_env("PUSHLANE_TEST_BROKER", "PUSHLANE_TEST_ADMIN"),
        "docker": _pulsar_container,
        "local": lambda ends: _pulsar_process(ends, run_dir),
    }
    with ExitStack() as ends:
        yield PulsarUrls(*_first("Pulsar", ways, ends))


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    run_dir = tmp_path_factory.mktemp("redis")
    ways: dict[str, Start] = {
        "env": lambda _: _from_env("PUSHLANE_TEST_REDIS"),
        "docker": _redis_container,
        "local": lambda ends: _redis_process(ends, run_dir),
    }
    with ExitStack() as ends:
        yield _first("Redis", ways, ends)[0]


@pytest.fixture
def pulsar_settings(pulsar_urls: PulsarUrls, redis_url: str, tmp_path: Path) -> Settings:
    """A namespace of the test's own, on the services of all tests."""
    return Settings(
        broker=pulsar_urls.broker,
        admin_url=pulsar_urls.admin,
        redis_url=redis_url,
        namespace=f"pushlane/t-{uuid.uuid4().hex[:12]}",
        data_dir=tmp_path / "store",
    )


def _first(service: str, ways: Mapping[str, Start], ends: ExitStack) -> tuple[str, ...]:
    """The URLs from the first way that works; skips or fails the test when none does."""
    forced = os.environ.get("PUSHLANE_TEST_SERVICES", "auto")
    assert forced in ("auto", *ways), (
        f"PUSHLANE_TEST_SERVICES={forced}: use auto, {', '.join(ways)}"
    )
    reasons: dict[str, Exception] = {}
    for name, start in ways.items():
        if forced in ("auto", name):
            try:
                return start(ends)
            except (Absent, UserError, Unreachable) as reason:
                reasons[name] = reason
    text = f"no {service} here: " + "; ".join(f"{name}: {why}" for name, why in reasons.items())
    broken = any(isinstance(why, Unreachable) for why in reasons.values())
    if broken or os.environ.get("CI"):
        pytest.fail(text, pytrace=False)
    pytest.skip(text)


def _from_env(*names: str) -> tuple[str, ...]:
    found = tuple(os.environ.get(name, "") for name in names)
    if not all(found):
        raise Absent(f"{' and '.join(names)} not set")
    return found


def _pulsar_container(ends: ExitStack) -> tuple[str, ...]:
    host = _container_host(PULSAR_IMAGE)
    ports = settle(FREE)
    command = container_command(ports, advertise=host)
    published = [ports.broker, ports.admin]
    container = _run_container(ends, PULSAR_IMAGE, command, ENVIRONMENT, published)
    admin = f"http://{host}:{ports.admin}"
    _wait_for_container("Pulsar", container, lambda: health.pulsar_answers(admin))
    return f"pulsar://{host}:{ports.broker}", admin


def _redis_container(ends: ExitStack) -> tuple[str, ...]:
    host = _container_host(REDIS_IMAGE)
    port = settle(FREE).redis
    command = docker.redis_command(port, data_path="/tmp")
    container = _run_container(ends, REDIS_IMAGE, command, {}, [port])
    url = f"redis://{host}:{port}/0"
    _wait_for_container("Redis", container, lambda: health.redis_answers(url))
    return (url,)


def _container_host(image: str) -> str:
    """Where published ports are reached (TESTCONTAINERS_HOST_OVERRIDE counts)."""
    if reason := docker.unusable_reason(lambda _: None, [image]):
        raise Absent(reason)
    from testcontainers.core.docker_client import DockerClient

    host = DockerClient().host()
    return HOST if host == "localhost" else host


def _run_container(
    ends: ExitStack, image: str, command: list[str], env: Mapping[str, str], ports: list[int]
) -> DockerContainer:
    """Start a container that is removed at the end."""
    from docker.errors import DockerException
    from testcontainers.core.container import DockerContainer

    container = DockerContainer(image).with_command(command)
    container.env = dict(env)
    host = _container_host(image)
    published = (HOST,) if host == HOST else ()
    container.ports = {port: (*published, port) if published else port for port in ports}
    try:
        container.start()
    except DockerException as error:
        raise Absent(f"the container {image} does not start: {error}") from error
    ends.callback(container.stop)
    return container


def _wait_for_container(what: str, container: DockerContainer, answers: Callable[[], bool]) -> None:
    inner = container.get_wrapped_container()

    def is_running() -> bool:
        inner.reload()
        return inner.status == "running"

    health.wait_until(
        answers,
        what=what,
        deadline_s=START_DEADLINE_S,
        is_running=is_running,
        log_tail=lambda: inner.logs(tail=15).decode(errors="replace"),
    )


def _pulsar_process(ends: ExitStack, run_dir: Path) -> tuple[str, ...]:
    way = _local_way(ends, run_dir)
    ports = settle(FREE)
    way.start_pulsar(ports, lambda _: None)
    _wait_for_process(way, "pulsar", lambda: health.pulsar_answers(ports.urls.admin))
    return ports.urls.broker, ports.urls.admin


def _redis_process(ends: ExitStack, run_dir: Path) -> tuple[str, ...]:
    way = _local_way(ends, run_dir)
    ports = settle(FREE)
    way.start_redis(ports, lambda _: None)
    _wait_for_process(way, "redis", lambda: health.redis_answers(ports.urls.redis))
    return (ports.urls.redis,)


def _local_way(ends: ExitStack, run_dir: Path) -> LocalWay:
    """Its data goes at the end; the downloaded distribution stays for the next session."""
    cache_dir = default_cache_dir()
    cache_dir.mkdir(parents=True, exist_ok=True)
    way = LocalWay(run_dir, cache_dir)
    ends.callback(way.stop, delete_data=True)
    return way


def _wait_for_process(
    way: LocalWay, service: Literal["pulsar", "redis"], answers: Callable[[], bool]
) -> None:
    health.wait_until(
        answers,
        what=service,
        deadline_s=START_DEADLINE_S,
        is_running=lambda: way.is_running(service),
        log_tail=lambda: way.log_tail(service),
    )
