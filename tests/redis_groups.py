"""Several redis-servers of a run's own: a Cluster of three, and a master with replica and Sentinel.

They are made of the same binary as the one server of other tests, and end with the test session.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from dev.stack.local import redis_server
from dev.stack.services import free_port
from pushlane.core.errors import UserError
from tests import processes

HOST = "127.0.0.1"
MASTER = "lanes"
_DEADLINE_S = 60.0
_SLOTS = 16_384
_HIGHEST_PORT = 55_535


class RedisGroup:
    """Servers by name, each in a folder of its own, with their ports."""

    def __init__(self, folder: Path) -> None:
        self._server = redis_server()
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ports: dict[str, int] = {}

    def start(self, name: str, options: Mapping[str, str], *, conf: str | None = None) -> int:
        folder = self._folder / name
        folder.mkdir(parents=True, exist_ok=True)
        port = self.ports.setdefault(name, _low_port())
        words = [word for option, value in options.items() for word in (option, *value.split())]
        words += ["--bind", HOST, "--port", str(port), "--dir", str(folder), "--save", ""]
        if conf is not None:
            file = folder / "sentinel.conf"
            file.write_text(f"port {port}\nbind {HOST}\ndir {folder}\n{conf}")
            words = [str(file), "--sentinel"]
        self._processes[name] = subprocess.Popen(
            [self._server, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        until(lambda: bool(self.client(name).ping()))
        return port

    def client(self, name: str) -> redis.Redis:
        return redis.Redis(HOST, self.ports[name])

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def stop(self) -> None:
        for name in list(self._processes):
            self.kill(name)


def _low_port() -> int:
    """Find a port that is free with the one 10,000 above it, which members of a Cluster use."""
    while (port := free_port()) > _HIGHEST_PORT:
        pass
    return port


def until(is_so: Callable[[], bool]) -> None:
    """Wait until this is true; errors of a server that is starting count as false."""

    def is_so_now() -> bool:
        with suppress(redis.RedisError):
            return is_so()
        return False

    processes.until(is_so_now, _DEADLINE_S)


def start_cluster(group: RedisGroup) -> str:
    """Start three masters, give each a third of the slots, and return the URL."""
    names = [f"node-{number}" for number in range(3)]
    for name in names:
        group.start(name, {"--cluster-enabled": "yes", "--cluster-node-timeout": "2000"})
    ends = [_SLOTS * number // 3 for number in range(4)]
    for name, first, last in zip(names, ends[:-1], ends[1:], strict=True):
        client = group.client(name)
        client.execute_command("CLUSTER ADDSLOTS", *range(first, last))
        client.execute_command("CLUSTER MEET", HOST, group.ports[names[0]])
    for name in names:
        until(lambda name=name: _is_whole(group.client(name)))
    return "redis+cluster://" + ",".join(f"{HOST}:{group.ports[name]}" for name in names[:2])


def _is_whole(client: redis.Redis) -> bool:
    info = client.execute_command("CLUSTER INFO")
    return info["cluster_state"] == "ok" and info["cluster_known_nodes"] == "3"


def start_sentinel(group: RedisGroup) -> str:
    """Start a master with a replica and one sentinel, and return the URL."""
    quick = {"--repl-diskless-sync-delay": "0"}
    master = group.start("master", quick)
    group.start("replica", {**quick, "--replicaof": f"{HOST} {master}"})
    until(lambda: group.client("replica").info("replication")["master_link_status"] == "up")
    watch = f"sentinel monitor {MASTER} {HOST} {master} 1\n"
    watch += f"sentinel down-after-milliseconds {MASTER} 500\n"
    watch += f"sentinel failover-timeout {MASTER} 3000\n"
    port = group.start("sentinel", {}, conf=watch)
    until(lambda: bool(group.client("sentinel").sentinel_slaves(MASTER)))
    return f"redis+sentinel://{HOST}:{port}/{MASTER}/0"


def _group(folder: Path, start: Callable[[RedisGroup], str]) -> Iterator[tuple[RedisGroup, str]]:
    try:
        group = RedisGroup(folder)
    except UserError as reason:
        pytest.skip(str(reason))
    try:
        yield group, start(group)
    finally:
        group.stop()


@pytest.fixture(scope="session")
def cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    for _, url in _group(tmp_path_factory.mktemp("cluster"), start_cluster):
        yield url


@pytest.fixture(scope="session")
def sentinel_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    for _, url in _group(tmp_path_factory.mktemp("sentinel"), start_sentinel):
        yield url


@pytest.fixture
def own_sentinel(tmp_path: Path) -> Iterator[tuple[RedisGroup, str]]:
    """A master, a replica and a sentinel of the test's own, to be killed."""
    yield from _group(tmp_path, start_sentinel)
