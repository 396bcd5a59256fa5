"""One bounded connection pool to a Redis server, with its errors in our words.

Keeps what it says free of passwords. Calls are retried a few times when a connection breaks, so
whatever goes through here must be harmless when it runs twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff
from redis.commands.core import AsyncScript
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from lanes.errors import BadInput, Unreachable
from lanes.masking import masked

CONNECTIONS = 32
CONNECT_TIMEOUT_S = 3.0
REPLY_TIMEOUT_S = 10.0
RETRIES = 3


class Client:
    """The server behind a URL. Nothing is connected before the first call."""

    def __init__(self, url: str) -> None:
        self.where = masked(url)
        self.redis = _open(url, self.where)
        self._scripts: dict[str, AsyncScript] = {}

    async def ping(self) -> None:
        await self.call("PING")

    async def call(self, *command: str | bytes | int) -> Any:
        with self.reach():
            return await self.redis.execute_command(*command)  # type: ignore[no-untyped-call]

    async def run(
        self, script: str, keys: Sequence[str], args: Sequence[str | bytes | int] = ()
    ) -> Any:
        """Run a Lua script, sent whole only when the server does not know it."""
        known = self._scripts.get(script)
        if known is None:
            known = self._scripts[script] = self.redis.register_script(script)
        with self.reach():
            return await known(keys=keys, args=args)

    def pipeline(self) -> Pipeline:
        """Commands for one round trip; run them inside `reach()`."""
        return self.redis.pipeline(transaction=False)

    @contextmanager
    def reach(self) -> Iterator[None]:
        """Vendor errors inside become ours."""
        try:
            yield
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

    async def close(self) -> None:
        await self.redis.aclose(close_connection_pool=True)


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
    return Redis(connection_pool=pool)
