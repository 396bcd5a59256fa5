"""Opens the client for a URL of Redis: of a single server, of a Sentinel's master, of a Cluster.

All of ours is under one hash tag (`backends.redis.keys`), so a Cluster keeps it on one of its
shards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import hiredis
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import (
    Sentinel,
    SentinelConnectionPool,
    SentinelManagedConnection,
    SentinelManagedSSLConnection,
)
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import ConnectionError as RedisConnectionError

from pushlane.backends.redis.access import RedisAccess
from pushlane.core.errors import BadInput
from pushlane.lanes.urls import masked
from pushlane.settings.transport import CLUSTER, SENTINEL
from pushlane.util.tls import TlsFiles

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
    kind = urlsplit(url).scheme.partition("+")[2]
    openers: dict[str, Callable[[str, RedisAccess], Redis | RedisCluster]] = {
        "": _open_single,
        SENTINEL: _open_sentinel,
        CLUSTER: _open_cluster,
    }
    try:
        return openers[kind](url, access)
    except (ValueError, LookupError) as error:
        raise BadInput(
            f"redis_url {masked(url)!r} is no URL of Redis; use one like {_EXAMPLES}"
        ) from error


async def close_redis(client: Redis | RedisCluster) -> None:
    """Close all connections of a client that `open_redis` gave, those to sentinels too."""
    if isinstance(client, RedisCluster):
        await client.aclose()
        return
    pool = client.connection_pool
    await client.aclose(close_connection_pool=True)
    if isinstance(pool, SentinelConnectionPool):
        await pool.sentinel_manager.aclose()


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
            raise RedisConnectionError(str(error)) from error
        await super()._connect()  # type: ignore[no-untyped-call]


def _kind_of(base: type, files: TlsFiles) -> type:
    """Return redis-py's class of connections with ours in front."""
    if issubclass(base, SSLConnection):
        return type(f"Fresh{base.__name__}", (_Fresh, _Packing, base), {"files": files})
    return type(f"Packing{base.__name__}", (_Packing, base), {})


class _BlockingSentinelPool(SentinelConnectionPool, BlockingConnectionPool):
    """A pool of a master that Sentinel names, where callers wait for a connection."""


class _Place(NamedTuple):
    """A URL with several hosts, in parts; user and password are '' when there are none."""

    is_tls: bool
    hosts: list[tuple[str, int]]
    user: str
    password: str
    path: list[str]


def _parsed(url: str, port: int) -> _Place:
    parts = urlsplit(url)
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    return _Place(
        parts.scheme.startswith("rediss"),
        [_address(host, port) for host in hosts.split(",")],
        unquote(user),
        unquote(password),
        [part for part in parts.path.split("/") if part],
    )


def _address(text: str, port: int) -> tuple[str, int]:
    parts: SplitResult = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError("a host is missing")
    return parts.hostname, parts.port or port


def _timing() -> dict[str, Any]:
    return {
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "socket_timeout": REPLY_TIMEOUT_S,
        "retry": Retry(ExponentialWithJitterBackoff(cap=0.5, base=0.05), RETRIES),
    }


def _certificates(files: TlsFiles) -> dict[str, Any]:
    paths = {
        "ssl_ca_certs": files.ca_file,
        "ssl_certfile": files.cert_file,
        "ssl_keyfile": files.key_file,
    }
    return {name: str(path) for name, path in paths.items() if path is not None}


def _login(access: RedisAccess) -> dict[str, Any]:
    provider = access.login()
    return {} if provider is None else {"credential_provider": provider}


def _open_single(url: str, access: RedisAccess) -> Redis:
    parts = urlsplit(url)
    is_tls = parts.scheme == "rediss"
    if unchecked := _UNCHECKED & parse_qs(parts.query).keys():
        raise BadInput(
            f"redis_url turns checks of certificates off with {min(unchecked)}: give the authority "
            "in redis_ca_file, and a host that its certificate is for"
        )
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=CONNECTIONS,
        timeout=REPLY_TIMEOUT_S,
        **_timing(),
        **_login(access),
        **(_certificates(access.files) if is_tls else {}),
    )
    pool.connection_class = _kind_of(pool.connection_class, access.files)
    return Redis(connection_pool=pool)


def _open_sentinel(url: str, access: RedisAccess) -> Redis:
    """Open the master of a name; user and password in the URL are those of the sentinels."""
    place = _parsed(url, _SENTINEL_PORT)
    master, *rest = place.path
    database = int(rest[0]) if rest else 0
    tls = {"ssl": True, **_certificates(access.files)} if place.is_tls else {}
    own = {"username": place.user or None, "password": place.password or None}
    asked = {**_timing(), **tls, **own}
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
        db=database,
        **_timing(),
        **_login(access),
        **(_certificates(access.files) if place.is_tls else {}),
    )
    return Redis(connection_pool=pool)


def _open_cluster(url: str, access: RedisAccess) -> RedisCluster:
    place = _parsed(url, _PORT)
    if place.path not in ([], ["0"]):
        raise ValueError("a Cluster has one database")
    given = {"username": place.user or None, "password": place.password or None}
    cluster = RedisCluster(
        startup_nodes=[ClusterNode(*address) for address in place.hosts],
        max_connections=_CLUSTER_CONNECTIONS,
        **_timing(),
        **(_login(access) or given),
        **({"ssl": True, **_certificates(access.files)} if place.is_tls else {}),
    )
    kind = _kind_of(SSLConnection if place.is_tls else Connection, access.files)
    cluster.connection_kwargs["connection_class"] = kind
    for node in cluster.nodes_manager.startup_nodes.values():
        node.connection_class = kind
    return cluster
