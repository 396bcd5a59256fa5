"""A real Pulsar, Redis and Kafka for tests: from the environment, in containers, or as processes.

Each is started when a test first asks for it, once for all processes that run tests side by side,
and stopped at the end of the run. Runs share them when PUSHLANE_TEST_RUN_DIR names a folder for
them; whoever made it stops them: `python -m tests.services FOLDER`. Absent, a test is skipped with
the reasons; in CI (`CI` is set) it fails. PUSHLANE_TEST_SERVICES forces one way: env, docker or
local.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
import pytest

from dev import alone
from dev.stack import Ports, default_cache_dir, docker
from dev.stack.kafka import KafkaProcess, kafka_answers
from dev.stack.local import LocalWay
from dev.stack.processes import Processes
from dev.stack.services import (
    ENVIRONMENT,
    HOST,
    PULSAR_IMAGE,
    REDIS_IMAGE,
    free_ports,
    pulsar_answers,
    redis_answers,
    settle,
    wait_until,
)
from pushlane.core.errors import Unreachable, UserError
from pushlane.settings import Settings
from tests.certificates import Authority

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

START_DEADLINE_S = 100.0
FREE = Ports(broker=0, admin=0, redis=0)
_RUN_DIR = "PUSHLANE_TEST_RUN_DIR"
_IS_OURS = pytest.StashKey[bool]()


class PulsarUrls(NamedTuple):
    """`broker` is a pulsar:// URL, `admin` an http:// one."""

    broker: str
    admin: str


class Absent(Exception):
    """This way cannot give the service here."""


class Started(msgspec.Struct):
    """A service that answers; `container` is the id of the one it runs in, if it does."""

    urls: tuple[str, ...]
    container: str = ""


Start = Callable[[Path], Started]


@pytest.fixture(scope="session")
def pulsar_urls() -> PulsarUrls:
    ways: dict[str, Start] = {
        "env": lambda _: _from_env("PUSHLANE_TEST_BROKER", "PUSHLANE_TEST_ADMIN"),
        "docker": lambda _: _pulsar_container(),
        "local": _pulsar_process,
    }
    return PulsarUrls(*_shared("pulsar", ways).urls)


@pytest.fixture(scope="session")
def redis_url() -> str:
    ways: dict[str, Start] = {
        "env": lambda _: _from_env("PUSHLANE_TEST_REDIS"),
        "docker": lambda _: _redis_container(),
        "local": _redis_process,
    }
    return _shared("redis", ways).urls[0]


@pytest.fixture(scope="session")
def kafka_servers() -> str:
    """HOST:PORT of a broker that makes no topic by itself; see `tests.ingest.kafka_topics`."""
    return _shared("kafka", _KAFKA).urls[0]


class SecureKafka(NamedTuple):
    """A listener of the same broker, for who has a certificate of `ca` and the password."""

    servers: str
    ca: Path
    cert: Path
    key: Path
    password: Path


@pytest.fixture(scope="session")
def secure_kafka() -> SecureKafka:
    """That of a broker which the run has started itself."""
    servers = _shared("kafka", {"local": _kafka_process}).urls
    if len(servers) < 2:
        pytest.skip("the broker of PUSHLANE_TEST_KAFKA has no such listener that is known")
    folder = run_dir() / _KAFKA_TLS
    names = ("ca.pem", "client.pem", "client.key.pem", "password")
    return SecureKafka(servers[1], *(folder / name for name in names))


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


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder of the run's services; workers, which run some of its tests, inherit it."""
    if _RUN_DIR not in os.environ:
        os.environ[_RUN_DIR] = tempfile.mkdtemp(prefix="pushlane-tests-")
        config.stash[_IS_OURS] = True


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop what any process of the run has started."""
    if config.stash.get(_IS_OURS, False):
        stop_all(Path(os.environ.pop(_RUN_DIR)))


def stop_all(folder: Path) -> None:
    """Stop the services of a folder, and remove it."""
    for record in folder.glob("*.json"):
        if container := msgspec.json.decode(record.read_bytes(), type=Started).container:
            _remove_container(container)
    _local_way(folder).stop(delete_data=True)
    KafkaProcess(folder).stop(delete_data=True)
    shutil.rmtree(folder, ignore_errors=True)


def run_dir() -> Path:
    """The folder that all processes of a run share."""
    return Path(os.environ[_RUN_DIR])


def _shared(service: str, ways: Mapping[str, Start]) -> Started:
    """The service of this run; whoever asks first starts it while the others wait."""
    folder = run_dir()
    record = folder / f"{service}.json"
    with alone(folder / f"{service}.lock", lambda: None):
        if not record.exists():
            record.write_bytes(msgspec.json.encode(_first(service, ways, folder)))
    return msgspec.json.decode(record.read_bytes(), type=Started)


def _first(service: str, ways: Mapping[str, Start], folder: Path) -> Started:
    """The service in the first way that works; skips or fails the test when none does."""
    forced = os.environ.get("PUSHLANE_TEST_SERVICES", "auto")
    assert forced in ("auto", "env", "docker", "local"), (
        f"PUSHLANE_TEST_SERVICES={forced}: use auto, env, docker or local"
    )
    reasons: dict[str, Exception] = {}
    if forced not in ("auto", *ways):
        reasons[forced] = Absent("it is not started this way")
    for name, start in ways.items():
        if forced in ("auto", name):
            try:
                return start(folder)
            except (Absent, UserError, Unreachable) as reason:
                reasons[name] = reason
    text = f"no {service} here: " + "; ".join(f"{name}: {why}" for name, why in reasons.items())
    broken = any(isinstance(why, Unreachable) for why in reasons.values())
    if broken or os.environ.get("CI"):
        pytest.fail(text, pytrace=False)
    pytest.skip(text)


def _from_env(*names: str) -> Started:
    found = tuple(os.environ.get(name, "") for name in names)
    if not all(found):
        raise Absent(f"{' and '.join(names)} not set")
    return Started(found)


def _pulsar_container() -> Started:
    host = _container_host(PULSAR_IMAGE)
    ports = settle(FREE)
    command = docker.pulsar_command(ports, advertise=host)
    published = [ports.broker, ports.admin]
    container = _run_container(PULSAR_IMAGE, command, ENVIRONMENT, published)
    admin = f"http://{host}:{ports.admin}"
    _wait_for_container("Pulsar", container, lambda: pulsar_answers(admin))
    return Started((f"pulsar://{host}:{ports.broker}", admin), _id_of(container))


def _redis_container() -> Started:
    host = _container_host(REDIS_IMAGE)
    port = settle(FREE).redis
    command = docker.redis_command(port, data_path="/tmp")
    container = _run_container(REDIS_IMAGE, command, {}, [port])
    url = f"redis://{host}:{port}/0"
    _wait_for_container("Redis", container, lambda: redis_answers(url))
    return Started((url,), _id_of(container))


def _container_host(image: str) -> str:
    """Where published ports are reached (TESTCONTAINERS_HOST_OVERRIDE counts)."""
    if reason := docker.unusable_reason(lambda _: None, [image]):
        raise Absent(reason)
    from testcontainers.core.docker_client import DockerClient

    host = DockerClient().host()
    return HOST if host == "localhost" else host


def _run_container(
    image: str, command: list[str], env: Mapping[str, str], ports: list[int]
) -> DockerContainer:
    """Start a container that nobody but us removes."""
    from docker.errors import DockerException
    from testcontainers.core.config import testcontainers_config
    from testcontainers.core.container import DockerContainer

    testcontainers_config.ryuk_disabled = True  # it removes them when this process ends
    container = DockerContainer(image).with_command(command)
    container.env = dict(env)
    host = _container_host(image)
    published = (HOST,) if host == HOST else ()
    container.ports = {port: (*published, port) if published else port for port in ports}
    try:
        container.start()
    except DockerException as error:
        raise Absent(f"the container {image} does not start: {error}") from error
    return container


def _id_of(container: DockerContainer) -> str:
    return str(container.get_wrapped_container().id)


def _remove_container(name: str) -> None:
    from testcontainers.core.docker_client import DockerClient

    DockerClient().client.containers.get(name).remove(force=True, v=True)


def _wait_for_container(what: str, container: DockerContainer, answers: Callable[[], bool]) -> None:
    inner = container.get_wrapped_container()

    def is_running() -> bool:
        inner.reload()
        return inner.status == "running"

    wait_until(
        answers,
        what=what,
        deadline_s=START_DEADLINE_S,
        is_running=is_running,
        log_tail=lambda: inner.logs(tail=15).decode(errors="replace"),
    )


def _pulsar_process(folder: Path) -> Started:
    way = _local_way(folder)
    ports = settle(FREE)
    way.start_pulsar(ports, lambda _: None)
    _wait_for_process(way, "pulsar", lambda: pulsar_answers(ports.urls.admin))
    return Started((ports.urls.broker, ports.urls.admin))


def _redis_process(folder: Path) -> Started:
    way = _local_way(folder)
    ports = settle(FREE)
    way.start_redis(ports, lambda _: None)
    _wait_for_process(way, "redis", lambda: redis_answers(ports.urls.redis))
    return Started((ports.urls.redis,))


def _kafka_process(folder: Path) -> Started:
    process = KafkaProcess(folder)
    port, inner, secure = free_ports(3)
    more = _secure_listener(secure, folder / _KAFKA_TLS)
    process.start(_cache_dir(), (port, inner), lambda _: None, more)
    _wait_for_process(process, "kafka", lambda: kafka_answers(port))
    return Started((f"{HOST}:{port}", f"{HOST}:{secure}"))


_KAFKA_TLS = "kafka-tls"
_KAFKA: dict[str, Start] = {
    "env": lambda _: _from_env("PUSHLANE_TEST_KAFKA"),
    "local": _kafka_process,
}


def _secure_listener(port: int, folder: Path) -> dict[str, str]:
    """Return the settings of one more listener; the certificates for it go into the folder."""
    authority = Authority(folder)
    authority.sign("client")
    own = authority.sign("broker", [HOST])
    both = folder / "both.pem"
    both.write_bytes(own.key.read_bytes() + own.cert.read_bytes())
    password = secrets.token_hex(8)
    (folder / "password").write_text(f"{password}\n")
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.ca),
        "ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": f'{login} user_pushlane="{password}";',
    }
    protocols = ("CONTROLLER:PLAINTEXT", "PLAINTEXT:PLAINTEXT", "SECURE:SASL_SSL")
    return {
        "listeners": f"SECURE://{HOST}:{port}",
        "advertised.listeners": f"SECURE://{HOST}:{port}",
        "listener.security.protocol.map": ",".join(protocols),
        **{f"listener.name.secure.{name}": value for name, value in settings.items()},
    }


def _local_way(folder: Path) -> LocalWay:
    """Its data goes at the end; the downloaded distribution stays for the next run."""
    return LocalWay(folder, _cache_dir())


def _cache_dir() -> Path:
    cache_dir = default_cache_dir()
    cache_dir.mkdir(parents=True, exist_ok=True)
    return cache_dir


def _wait_for_process(
    way: Processes, service: Literal["pulsar", "redis", "kafka"], answers: Callable[[], bool]
) -> None:
    wait_until(
        answers,
        what=service,
        deadline_s=START_DEADLINE_S,
        is_running=lambda: way.is_running(service),
        log_tail=lambda: way.log_tail(service),
    )


if __name__ == "__main__":
    stop_all(Path(sys.argv[1]))
