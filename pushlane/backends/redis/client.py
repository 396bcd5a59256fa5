"""Opens the client for a URL of Redis: of a single server, of a Sentinel's master, of a Cluster.

A client has a bounded pool of connections, and gives errors in our words, free of passwords. Calls
are retried a few times when a connection breaks, so every call that goes through here must be
harmless when it runs twice. All of ours is under one hash tag (`backends.redis.keys`), so a Cluster
keeps it on one of its shards.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Self, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import hiredis
from redis import __version__ as redis_version
from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import (
    MasterNotFoundError,
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)
from redis.backoff import ExponentialWithJitterBackoff
from redis.commands.core import AsyncScript

from pushlane.backends.redis.access import NO_ACCESS, RedisAccess
from pushlane.backends.redis.keys import READY, Keys
from pushlane.core.errors import BadInput, Unreachable
from pushlane.settings.transport import CLUSTER, SENTINEL
from pushlane.util.errors import Denied, MissingPermission
from pushlane.util.texts import masked
from pushlane.util.tls import TlsFiles, tls_refusal, url_tls_problem

CONNECTIONS = 32
CONNECT_TIMEOUT_S = 3.0
REPLY_TIMEOUT_S = 10.0
RETRIES = 3
_CLUSTER_CONNECTIONS = 512  # of a node: beyond these a call fails at once
_UNCHECKED = {"ssl_cert_reqs", "ssl_check_hostname"}
_SENTINEL_PORT, _PORT = 26_379, 6_379

_EXAMPLES = (
    "redis://127.0.0.1:6379/0, rediss:// for TLS, redis+sentinel://HOST:26379,HOST:26379/MASTER/0 "
    "or redis+cluster://HOST:6379,HOST:6379"
)


def open_redis(url: str, access: RedisAccess) -> Redis | RedisCluster:
    """Return a client of redis-py's asyncio, which connects when it is first used.

    Raises:
        BadInput: the URL is none of Redis; never shows its password.
    """
    openers: dict[str, Callable[[str, RedisAccess], Redis | RedisCluster]] = {
        "": _open_single,
        SENTINEL: _open_sentinel,
        CLUSTER: _open_cluster,
    }
    try:
        return openers[urlsplit(url).scheme.partition("+")[2]](url, access)
    except (ValueError, LookupError) as error:
        raise BadInput(
            f"redis_url {masked(url)!r} is not a URL of Redis; use one like {_EXAMPLES}"
        ) from error


class _Packing(AbstractConnection):
    """Packs commands in C: redis-py's asyncio connections take five times as long, in Python."""

    def pack_command(self, *args: Any) -> list[bytes]:
        name, *rest = args
        parts = name.split() if isinstance(name, str | bytes) else [name]
        return [hiredis.pack_command((*parts, *rest))]


class _Fresh(SSLConnection):
    """Reads the files of certificates for each connection, since they may have been replaced.

    With a file of authorities it trusts these alone; redis-py trusts those of the system besides.
    """

    files: TlsFiles

    async def _connect(self) -> None:
        try:
            self.ssl_context.context = self.files.context() if self.files.ca_file else None
        except BadInput as error:  # while we run it is waited for
            raise exceptions.ConnectionError(str(error)) from error
        await super()._connect()  # type: ignore[no-untyped-call]


def _kind_of(base: type, files: TlsFiles) -> type:
    """Return redis-py's class of connections with ours in front."""
    if issubclass(base, SSLConnection):
        return type(f"Fresh{base.__name__}", (_Fresh, _Packing, base), {"files": files})
    return type(f"Packing{base.__name__}", (_Packing, base), {})


class _BlockingSentinelPool(SentinelConnectionPool, BlockingConnectionPool):
    """A pool of a master that Sentinel names, where callers wait for a connection."""


class _Place(NamedTuple):
    """A URL with several hosts, in parts; the login has a None for what is not there."""

    is_tls: bool
    hosts: list[tuple[str, int]]
    login: dict[str, str | None]
    path: list[str]


def _parsed(url: str, port: int) -> _Place:
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    return _Place(
        parts.scheme.startswith("rediss"),
        [_address(host, port) for host in hosts.split(",")],
        {"username": unquote(user) or None, "password": unquote(password) or None},
        [part for part in parts.path.split("/") if part],
    )


def _address(text: str, port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError("a host is missing")
    return parts.hostname, parts.port or port


def _common() -> dict[str, Any]:
    return {
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "socket_timeout": REPLY_TIMEOUT_S,
        "retry": Retry(ExponentialWithJitterBackoff(cap=0.5, base=0.05), RETRIES),
        **_driver(),
    }


def _driver() -> dict[str, Any]:
    """Return what a connection tells the server of its client.

    Unless it is given, redis-py 8 looks for its version in what is installed, anew for each
    connection: 16 ms of the loop. Versions without this class look once.
    """
    try:
        from redis.driver_info import DriverInfo
    except ImportError:
        return {}
    return {"driver_info": DriverInfo(lib_version=redis_version)}


def _certificates(files: TlsFiles) -> dict[str, Any]:
    paths = {
        "ssl_ca_certs": files.ca_file,
        "ssl_certfile": files.cert_file,
        "ssl_keyfile": files.key_file,
    }
    return {name: str(path) for name, path in paths.items() if path is not None}


def _asking(access: RedisAccess, *, is_tls: bool) -> dict[str, Any]:
    """Return how servers are asked: bounds of time, who we are, and which certificates count."""
    provider = access.login()
    login = {} if provider is None else {"credential_provider": provider}
    return _common() | login | (_certificates(access.files) if is_tls else {})


def _open_single(url: str, access: RedisAccess) -> Redis:
    parts = urlsplit(url)
    if unchecked := _UNCHECKED & parse_qs(parts.query).keys():
        raise BadInput(
            f"redis_url turns checks of certificates off with {min(unchecked)}: give the authority "
            "in redis_ca_file, and a host that its certificate is for"
        )
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=CONNECTIONS,
        timeout=REPLY_TIMEOUT_S,
        **_asking(access, is_tls=parts.scheme == "rediss"),
    )
    pool.connection_class = _kind_of(pool.connection_class, access.files)
    return Redis(connection_pool=pool)


def _open_sentinel(url: str, access: RedisAccess) -> Redis:
    """Open the master of a name; user and password in the URL are those of the sentinels."""
    place = _parsed(url, _SENTINEL_PORT)
    master, *rest = place.path
    tls = {"ssl": True, **_certificates(access.files)} if place.is_tls else {}
    asked = {**_common(), **tls, **place.login}
    sentinel = Sentinel(place.hosts, sentinel_kwargs=asked)  # type: ignore[no-untyped-call]
    for each in sentinel.sentinels:
        kind = each.connection_pool.connection_class
        each.connection_pool.connection_class = _kind_of(kind, access.files)
    base = SentinelManagedSSLConnection if place.is_tls else SentinelManagedConnection
    pool = _BlockingSentinelPool(  # type: ignore[no-untyped-call]
        master,
        sentinel,
        connection_class=_kind_of(base, access.files),
        max_connections=CONNECTIONS,
        timeout=REPLY_TIMEOUT_S,
        db=int(rest[0]) if rest else 0,
        **_asking(access, is_tls=place.is_tls),
    )
    return Redis(connection_pool=pool)


def _open_cluster(url: str, access: RedisAccess) -> RedisCluster:
    place = _parsed(url, _PORT)
    if place.path not in ([], ["0"]):
        raise ValueError("a Cluster has one database")
    given: dict[str, Any] = {"ssl": True} if place.is_tls else {}
    if access.login() is None:
        given |= place.login
    cluster = RedisCluster(
        startup_nodes=[ClusterNode(*address) for address in place.hosts],
        max_connections=_CLUSTER_CONNECTIONS,
        **given,
        **_asking(access, is_tls=place.is_tls),
    )
    kind = _kind_of(SSLConnection if place.is_tls else Connection, access.files)
    cluster.connection_kwargs["connection_class"] = kind
    for node in cluster.nodes_manager.startup_nodes.values():
        node.connection_class = kind
    return cluster


NOW = """
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
"""
"""What a script begins with that needs the server's time."""

_ASK = READY + "return ready(KEYS[1], KEYS[2]) and {redis.call(ARGV[1], KEYS[3], unpack(ARGV, 2))}"

_REFUSED = (
    exceptions.AuthenticationError,
    exceptions.AuthenticationWrongNumberOfArgsError,
    exceptions.AuthorizationError,
    exceptions.NoPermissionError,
)
_ANY_ANSWER_S = 10.0
_START_IT = "start it (`pushlane up` for development) or set PUSHLANE_REDIS_URL to one that runs"

T = TypeVar("T")

Arg = str | bytes | int
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


def body_or_empty(answer: Any) -> bytes:
    """Read a body; an empty one when there is none."""
    return words([answer or b""])[0]


def bodies_only(answer: Any) -> list[bytes | None]:
    """Read the bodies that were asked for, in that order; None for those that are not there."""
    words([body for body in answer if body is not None])
    return list(answer)


def mapping(answer: Any) -> dict[bytes, bytes]:
    """Read a hash, which the client gives as a dict, or as a list of names and values."""
    if isinstance(answer, dict):
        return answer
    return dict(zip(answer[::2], answer[1::2], strict=True))


def whole_numbers(answer: Any) -> list[int]:
    """Read a list of whole numbers."""
    return list(map(int, answer))


def turn(answer: Any) -> tuple[bytes, bytes]:
    """Read how a script went that begins a write, and the value that it found."""
    first, *rest = words(answer)
    return first, rest[0] if rest else b""


def _is_denied(error: exceptions.RedisError) -> bool:
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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

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

    async def call(self, *command: Arg, read: Read[T] = _as_it_is) -> T:
        """Send a command; return what `read` makes of the answer."""
        with self.reach():
            answer = await self.redis.execute_command(*command)
        with self.understood():
            return read(answer)

    async def run(
        self,
        script: str,
        keys: Sequence[str],
        args: Sequence[Arg] = (),
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

    async def call_each(self, commands: Iterable[Sequence[Arg]], *, read: Read[T] = _as_it_is) -> T:
        """Send commands in one round trip; return what `read` makes of the list of answers."""
        pipeline = self.redis.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        with self.reach():
            answers = await pipeline.execute()
        with self.understood():
            return read(answers)

    @contextmanager
    def reach(self) -> Iterator[None]:
        """Translate vendor errors that are raised inside."""
        try:
            with _heeded():
                yield
        except (exceptions.MovedError, exceptions.AskError) as error:
            raise Unreachable(
                f"Redis at {self.where} is part of a cluster ({type(error).__name__}): give the "
                "URL as redis+cluster://HOST:PORT,HOST:PORT"
            ) from error
        except exceptions.RedisClusterException as error:
            raise Unreachable(
                f"Redis at {self.where} does not answer as a Cluster ({str(error)[:80]}): check "
                "its nodes, or give the URL of a single server as redis://HOST:PORT/0"
            ) from error
        except MasterNotFoundError as error:
            raise self._no_master() from error
        except _REFUSED as error:
            raise self._denied(error) from error
        except (exceptions.ConnectionError, exceptions.TimeoutError, OSError) as error:
            raise Unreachable(
                f"Redis at {self.where} does not answer ({type(error).__name__}); "
                f"{self._tls_advice(error) or _START_IT}"
            ) from error
        except BadInput:
            raise
        except exceptions.RedisError as error:
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
            "them, their ports, their password in the URL, and the name after the slash"
        )

    def _denied(self, error: exceptions.RedisError) -> Denied:
        """Make the error for a user that is not accepted, or may not do what was asked."""
        in_url = "@" in self.where and self._access.login() is None
        who, said = "the login in redis_url" if in_url else self._access.name, str(error)[:160]
        if (
            isinstance(error, exceptions.NoPermissionError)
            or "permission" in said
            or _is_denied(error)
        ):
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
            f"Redis at {self.where} gave an unexpected answer ({type(error).__name__}); check "
            "that PUSHLANE_REDIS_URL names a Redis of its own"
        )

    async def close(self) -> None:
        """Close all connections, those to sentinels too."""
        if isinstance(self.redis, RedisCluster):
            await self.redis.aclose()
            return
        pool = self.redis.connection_pool
        await self.redis.aclose(close_connection_pool=True)
        if isinstance(pool, SentinelConnectionPool):
            await pool.sentinel_manager.aclose()


class OnRedis:
    """Something that is kept on Redis: what reaches it, and the names of its keys."""

    def __init__(self, client: RedisClient, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    async def _ask_filled(self, command: str, key: str, *args: Arg, read: Read[T]) -> list[T]:
        """Run a reading command on one key; return nothing when the registry is not filled."""
        keys = [self._keys.version, self._keys.filled, key]
        return await self._client.run(
            _ASK, keys, [command, *args], read=lambda found: [read(one) for one in found or ()]
        )
