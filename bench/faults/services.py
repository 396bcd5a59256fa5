"""A Pulsar and a Redis to do harm to, each behind a proxy, and the harm that is done to them.

The services listen on 127.0.0.2 and say that they are on 127.0.0.1, where the proxies are: so the
broker's own answer to a look-up leads through the proxy too. Nobody else's service is ever touched.
Those who harm have a path to Redis of their own, which leads elsewhere only when Redis fails over.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from bench.proxy import Proxy, Way, proxies
from dev.stack import Ports, StackUrls, default_cache_dir
from dev.stack.local import LocalWay
from dev.stack.services import HOST, free_port, pulsar_answers, redis_answers, settle, wait_until
from pushlane.core.errors import Unreachable

_BEHIND = "127.0.0.2"
_OWN_PATH = "127.0.0.3"
_BETWEEN = "127.0.0.4"
_START_DEADLINE_S = 120.0
_GONE_DEADLINE_S = 20.0
_LOOK_EVERY_S = 0.05
_EMPTY_DEADLINE_S = 10.0
SECOND_REDIS = "second-redis"


@dataclass(frozen=True)
class Services:
    """`broker_path` holds the proxies to the broker and to its admin REST.

    `own_redis_path` is that of those who harm, `replica_path` that of one Redis to the other.
    """

    way: LocalWay
    ports: Ports
    broker_path: tuple[Proxy, Proxy]
    redis_path: Proxy
    own_redis_path: Proxy
    replica_path: Proxy

    @property
    def urls(self) -> StackUrls:
        return self.ports.urls

    @property
    def behind(self) -> tuple[str, str]:
        """The URLs of the admin REST and of Redis without their proxies."""
        admin = self.urls.admin.replace(HOST, _BEHIND)
        return admin, self.urls.redis.replace(HOST, _OWN_PATH)

    async def restart_pulsar(self) -> None:
        """kill -9 and a new start; returns when it answers."""
        self.way.send("pulsar", signal.SIGKILL)
        await asyncio.to_thread(self._until_gone, "pulsar")
        self.way.start_pulsar(self.ports, say)
        await self._answers("pulsar", lambda: pulsar_answers(self.urls.admin))

    async def restart_redis(self) -> None:
        self.way.send("redis", signal.SIGKILL)
        await asyncio.to_thread(self._until_gone, "redis")
        self.way.start_redis(self.ports, lambda step: None)
        await self._answers("redis", lambda: redis_answers(self.urls.redis))

    async def freeze_redis(self, lasting_s: float) -> None:
        self.way.send("redis", signal.SIGSTOP)
        try:
            await asyncio.sleep(lasting_s)
        finally:
            self.way.send("redis", signal.SIGCONT)

    def empty_redis(self) -> None:
        self.ask_redis(self.ports.redis, "FLUSHALL")

    def ask_redis(self, port: int, command: str) -> str:
        """Return the first piece of the answer of the Redis at this port."""
        with socket.create_connection((_BEHIND, port), timeout=_EMPTY_DEADLINE_S) as connection:
            connection.sendall(f"{command}\r\n".encode())
            return connection.recv(64 * 1024).decode()

    def start_second_redis(self) -> int:
        """Start another one, of which nobody knows, and return its port."""
        port = free_port()
        self.way.start_redis(replace(self.ports, redis=port), say, name=SECOND_REDIS)
        url = f"redis://{_BEHIND}:{port}/0"
        _wait(self.way, SECOND_REDIS, lambda: redis_answers(url))
        return port

    def end_second_redis(self) -> None:
        self.way.end(SECOND_REDIS)

    def replicate(self, port: int, master: int) -> None:
        """Make the Redis at the port the replica of the other, through a path between the two."""
        self.replica_path.heal()
        self.replica_path.lead_to(master)
        self.ask_redis(port, f"REPLICAOF {_BETWEEN} {self.ports.redis}")

    def _until_gone(self, service: str) -> None:
        deadline = time.monotonic() + _GONE_DEADLINE_S
        while self.way.is_running(service):
            if time.monotonic() > deadline:
                raise Unreachable(f"{service} does not end within {_GONE_DEADLINE_S:g} s of a kill")
            time.sleep(_LOOK_EVERY_S)

    async def _answers(self, service: str, answers: Callable[[], bool]) -> None:
        await asyncio.to_thread(_wait, self.way, service, answers)


def say(step: str) -> None:
    print(step, file=sys.stderr)


@contextmanager
def own_services(run_dir: Path, broker_settings: Mapping[str, str]) -> Iterator[Services]:
    """Both services and their proxies, gone with their data in the end."""
    cache_dir = default_cache_dir()
    cache_dir.mkdir(parents=True, exist_ok=True)
    way = LocalWay(run_dir, cache_dir, bind=_BEHIND, broker_settings=broker_settings)
    ports = settle(Ports(broker=0, admin=0, redis=0))
    paths = [Way(HOST, _BEHIND, port) for port in (ports.broker, ports.admin, ports.redis)]
    paths += [Way(listen, _BEHIND, ports.redis) for listen in (_OWN_PATH, _BETWEEN)]
    with proxies(paths) as (broker, admin, redis, own_redis, replica):
        try:
            way.start(ports, say)
            _wait(way, "redis", lambda: redis_answers(ports.urls.redis))
            _wait(way, "pulsar", lambda: pulsar_answers(ports.urls.admin))
            yield Services(way, ports, (broker, admin), redis, own_redis, replica)
        finally:
            way.send("redis", signal.SIGCONT)
            way.end(SECOND_REDIS)
            way.stop(delete_data=True)


def _wait(way: LocalWay, service: str, answers: Callable[[], bool]) -> None:
    wait_until(
        answers,
        what=service,
        deadline_s=_START_DEADLINE_S,
        is_running=lambda: way.is_running(service),
        log_tail=lambda: way.log_tail(service),
    )
