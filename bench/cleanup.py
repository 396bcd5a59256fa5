"""Removes what a benchmark has left in a Pulsar and Redis that go on: namespaces, topics and keys.

What belongs to a benchmark is told by its name: its namespace, and those that begin with it.
"""

from __future__ import annotations

import asyncio
from urllib.parse import quote

from redis.asyncio import Redis

from bench.figures import say
from pushlane.backends.pulsar.admin import Admin, connect_admin
from pushlane.core.errors import PushlaneError
from pushlane.settings import Settings

_AT_ONCE = 16
_TRIES = 5
_AGAIN_S = 1.0
_KEYS_AT_ONCE = 1_000


async def remove_namespaces(settings: Settings) -> None:
    """Remove the settings' namespace and all whose names begin with it, whoever reads there."""
    try:
        async with connect_admin(settings) as admin:
            tenant = settings.namespace.split("/", 1)[0]
            names = (await admin.call("GET", f"/namespaces/{tenant}", "list namespaces")).value
            for name in (name for name in names if _is_ours(name, settings.namespace)):
                await _remove(admin, name)
        await remove_keys(settings)
    except PushlaneError as error:
        say(f"namespaces {settings.namespace}* are left: {error}")


def _is_ours(name: str, namespace: str) -> bool:
    return name == namespace or name.startswith(f"{namespace}-")


async def _remove(admin: Admin, namespace: str) -> None:
    """Its topics first; a client that is just leaving may be in the way for a moment."""
    path, doing = f"/namespaces/{namespace}", f"remove namespace {namespace}"
    for left in reversed(range(_TRIES)):
        await _remove_topics(admin, namespace)
        allow = (404, 409, 412, 500) if left else (404,)
        if (await admin.call("DELETE", path, doing, allow=allow)).status < 405:
            return
        await asyncio.sleep(_AGAIN_S)


async def _remove_topics(admin: Admin, namespace: str) -> None:
    doing, path = f"empty namespace {namespace}", f"/persistent/{namespace}"
    room = asyncio.Semaphore(_AT_ONCE)

    async def remove(topic: str, what: str) -> None:
        name = quote(topic.rsplit("/", 1)[1], safe="")
        async with room:
            await admin.call(
                "DELETE", f"{path}/{name}{what}?force=true", doing, allow=(404, 409, 412, 500)
            )

    for lists, what in (("/partitioned", "/partitions"), ("", "")):
        topics = (await admin.call("GET", f"{path}{lists}", doing)).value
        await asyncio.gather(*(remove(topic, what) for topic in topics))


async def remove_keys(settings: Settings) -> None:
    """Empty Redis of all that belongs to the settings' namespace and those that begin with it."""
    redis = Redis.from_url(settings.redis_url)
    try:
        names = []
        async for name in redis.scan_iter(f"{{{settings.namespace}*", count=_KEYS_AT_ONCE):
            names.append(name)
        for first in range(0, len(names), _KEYS_AT_ONCE):
            await redis.unlink(*names[first : first + _KEYS_AT_ONCE])
    finally:
        await redis.aclose()
