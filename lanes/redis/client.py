"""One bounded connection pool to a Redis server, with its errors in our words.

Its messages are free of passwords. Calls are retried a few times when a connection breaks, so every
call that goes through here must be harmless when it runs twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import hiredis
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff
from redis.commands.core import AsyncScript
from redis.exceptions import AskError, ClusterDownError, MovedError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from pushlane.lanes.errors import BadInput, Unreachable
from pushlane.lanes.urls import masked

CONNECTIONS = 32
CONNECT_TIMEOUT_S = 3.0
REPLY_TIMEOUT_S = 10.0
RETRIES = 3

NOW = """
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
"""
"""What a script begins with that needs the server's time."""

T = TypeVar("T")

Read = Callable[[Any], T]


def _as_it_is(answer: Any) -> Any:
    return answer


def numbers_only(answer: Any) -> int | None:
    """Read a number, or none."""
    return None if answer is None else int(answer)


def words(answer: Any) -> list[bytes]:
    """Read a list of byte strings, or a set, which the client gives as one or as a list."""
    answer = list(answer) if isinstance(answer, set) else answer
    if not isinstance(answer, list) or not all(isinstance(word, bytes) for word in answer):
        raise TypeError("no list of byte strings")
    return answer


def bodies_only(answer: Any) -> list[bytes | None]:
    """Read the bodies that were asked for, in that order; None for those that are not there."""
    words([body for body in answer if body is not None])
    return list(answer)


def turn(answer: Any) -> tuple[bytes, bytes]:
    """Read how a script went that begins a write, and the value that it found."""
    first, *rest = words(answer)
    return first, rest[0] if rest else b""


class RedisClient:
    """The server behind a URL. Nothing is connected before the first call."""

    def __init__(self, url: str) -> None:
        self.where = masked(url)
        self.redis = _open(url, self.where)
        self._scripts: dict[str, AsyncScript] = {}

    async def ping(self) -> None:
        await self.call("PING")

    async def call(self, *command: str | bytes | int, read: Read[T] = _as_it_is) -> T:
        """Send a command; return what `read` makes of the answer."""
        with self.reach():
            answer = await self.redis.execute_command(*command)  # type: ignore[no-untyped-call]
        with self.understood():
            return read(answer)

    async def run(
        self,
        script: str,
        keys: Sequence[str],
        args: Sequence[str | bytes | int] = (),
        *,
        read: Read[T] = _as_it_is,
    ) -> T:
        """Run a Lua script, sent whole only when the server does not know it.

        Returns what `read` makes of the answer.
        """
        known = self._scripts.get(script)
        if known is None:
            known = self._scripts[script] = self.redis.register_script(script)
        with self.reach():
            answer = await known(keys=keys, args=args)
        with self.understood():
            return read(answer)

    def pipeline(self) -> Pipeline:
        """Collect commands for one round trip; run them inside `reach()`."""
        return self.redis.pipeline(transaction=False)

    @contextmanager
    def reach(self) -> Iterator[None]:
        """Translate vendor errors that are raised inside."""
        try:
            yield
        except (MovedError, AskError, ClusterDownError) as error:
            raise Unreachable(
                f"Redis at {self.where} is part of a cluster ({type(error).__name__}), and Redis "
                "Cluster is not supported: use a single server, or one with replicas and Sentinel"
            ) from error
        except (RedisConnectionError, RedisTimeoutError) as error:
            raise Unreachable(
                f"Redis at {self.where} does not answer ({type(error).__name__}); start it "
                "(`pushlane up` for development) or set PUSHLANE_REDIS_URL to one that runs"
            ) from error
        except RedisError as error:
            raise Unreachable(
                f"Redis at {self.where} refuses a command ({type(error).__name__}: "
                f"{str(error)[:120]}); look at its log, its memory limit and its access rules"
            ) from error
        except Exception as error:  # whatever the client makes of bytes that are no Redis'
            raise self._odd(error) from error

    @contextmanager
    def understood(self) -> Iterator[None]:
        """Translate errors of reading an answer inside, when it has an unexpected form."""
        try:
            yield
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise self._odd(error) from error

    def _odd(self, error: Exception) -> Unreachable:
        return Unreachable(
            f"Redis at {self.where} answered something else than was asked "
            f"({type(error).__name__}); check that PUSHLANE_REDIS_URL names a Redis of its own"
        )

    async def close(self) -> None:
        await self.redis.aclose(close_connection_pool=True)


class _Packing:
    """Packs commands in C: redis-py's asyncio connections take five times as long, in Python."""

    def pack_command(self, *args: str | bytes | int | float) -> list[bytes]:
        name, *rest = args
        parts = name.split() if isinstance(name, str | bytes) else [name]
        return [hiredis.pack_command((*parts, *rest))]


def _open(url: str, where: str) -> Redis:
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            timeout=REPLY_TIMEOUT_S,
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            socket_timeout=REPLY_TIMEOUT_S,
            retry=Retry(ExponentialWithJitterBackoff(cap=0.5, base=0.05), RETRIES),
        )
    except ValueError as error:
        raise BadInput(
            f"redis_url {where!r} is no URL of Redis; use one like redis://127.0.0.1:6379/0"
        ) from error
    kind = pool.connection_class
    pool.connection_class = type(f"Packing{kind.__name__}", (_Packing, kind), {})
    return Redis(connection_pool=pool)
