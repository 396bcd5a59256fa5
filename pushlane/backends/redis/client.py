"""One bounded pool of connections to Redis, with its errors in our words.

Its messages are free of passwords. Calls are retried a few times when a connection breaks, so every
call that goes through here must be harmless when it runs twice.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import urlsplit

from redis.asyncio.sentinel import MasterNotFoundError
from redis.commands.core import AsyncScript
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    AuthorizationError,
    MovedError,
    NoPermissionError,
    RedisClusterException,
    RedisError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from pushlane.backends.redis.access import NO_ACCESS, RedisAccess
from pushlane.core.errors import BadInput, Denied, MissingPermission, Unreachable
from pushlane.lanes.redis.opening import close_redis, open_redis
from pushlane.lanes.urls import masked
from pushlane.util.tls import tls_refusal, url_tls_problem

NOW = """
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
"""
"""What a script begins with that needs the server's time."""

_REFUSED = (
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    AuthorizationError,
    NoPermissionError,
)
_ANY_ANSWER_S = 10.0
_START_IT = "start it (`pushlane up` for development) or set PUSHLANE_REDIS_URL to one that runs"

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


def _is_denied(error: RedisError) -> bool:
    """Return whether a script was refused a command or a key, as Redis 7 and Redis 6 say it."""
    return "ACL failure" in str(error) or "user executing the script can't" in str(error)


@contextmanager
def _heeded() -> Iterator[None]:
    """Raise the cancellation of this task that was swallowed inside, else what is raised there.

    redis-py sends by `asyncio.wait_for`, which until Python 3.12 returns as if nothing had been
    when a cancellation comes at the moment of its end (CPython issue 86296).
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        yield
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError


class RedisClient:
    """The servers behind a URL. Nothing is connected before the first call."""

    def __init__(self, url: str, access: RedisAccess = NO_ACCESS) -> None:
        self.where = masked(url)
        self.redis = open_redis(url, access)
        self._access = access
        self._scripts: dict[str, AsyncScript] = {}

    async def ping(self) -> None:
        """Ask for any answer, and not again and again as a command is that waits for long.

        Raises:
            Denied: our user or password is not accepted.
            Unreachable: there is none within 10 s; says what is wrong with TLS where that is why.
        """
        try:
            with self.reach():
                async with asyncio.timeout(_ANY_ANSWER_S):
                    await self.redis.execute_command("PING")
        except Denied:
            raise
        except Unreachable as error:
            problem = await url_tls_problem(self.where, self._access.files)
            if not problem:
                raise
            raise Unreachable(f"Redis at {self.where} cannot be used: {problem}") from error

    async def call(self, *command: str | bytes | int, read: Read[T] = _as_it_is) -> T:
        """Send a command; return what `read` makes of the answer."""
        with self.reach():
            answer = await self.redis.execute_command(*command)
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

    def pipeline(self) -> Any:
        """Collect commands for one round trip; run them inside `reach()`."""
        return self.redis.pipeline(transaction=False)

    @contextmanager
    def reach(self) -> Iterator[None]:
        """Translate vendor errors that are raised inside."""
        try:
            with _heeded():
                yield
        except (MovedError, AskError) as error:
            raise Unreachable(
                f"Redis at {self.where} is part of a cluster ({type(error).__name__}): give the "
                "URL as redis+cluster://HOST:PORT,HOST:PORT"
            ) from error
        except RedisClusterException as error:
            raise Unreachable(
                f"Redis at {self.where} is no Cluster that answers ({str(error)[:80]}): check its "
                "nodes, or give the URL of a single server as redis://HOST:PORT/0"
            ) from error
        except MasterNotFoundError as error:
            raise self._no_master() from error
        except _REFUSED as error:
            raise self._denied(error) from error
        except (RedisConnectionError, RedisTimeoutError, OSError) as error:
            raise Unreachable(
                f"Redis at {self.where} does not answer ({type(error).__name__}); "
                f"{self._tls_advice(error) or _START_IT}"
            ) from error
        except BadInput:
            raise
        except RedisError as error:
            if _is_denied(error):
                raise self._denied(error) from error
            if "`SENTINEL`" in str(error) or "'SENTINEL'" in str(error):
                raise self._no_master() from error
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

    def _no_master(self) -> Unreachable:
        return Unreachable(
            f"Redis at {self.where}: none of these sentinels names a master that is up; check "
            "them, their ports, their password in the URL, and the name behind the slash"
        )

    def _denied(self, error: RedisError) -> Denied:
        """Make the error for a user that is not accepted, or may not do what was asked."""
        in_url = "@" in self.where and self._access.login() is None
        who, said = "the login in redis_url" if in_url else self._access.name, str(error)[:160]
        if isinstance(error, NoPermissionError) or "permission" in said or _is_denied(error):
            return MissingPermission(
                f"Redis at {self.where} does not let {who} do this ({said}): an administrator "
                "gives it with ACL SETUSER; `pushlane bootstrap --print` has the lines"
            )
        return Denied(
            f"Redis at {self.where} does not accept {who} ({said}): check redis_user and "
            "redis_password_file, or redis_password, with its administrator"
        )

    def _tls_advice(self, error: BaseException) -> str:
        """Return what is wrong with TLS when that is below this error."""
        seen: BaseException | None = error
        while seen is not None:
            if isinstance(seen, BadInput):
                return str(seen)
            if isinstance(seen, ssl.SSLError):
                host = urlsplit(self.where).hostname or self.where
                return tls_refusal(seen, host, self._access.files)
            seen = seen.__cause__ or seen.__context__
        return ""

    def _odd(self, error: Exception) -> Unreachable:
        return Unreachable(
            f"Redis at {self.where} answered something else than was asked "
            f"({type(error).__name__}); check that PUSHLANE_REDIS_URL names a Redis of its own"
        )

    async def close(self) -> None:
        await close_redis(self.redis)
