"""Measures what pushlane keeps: keys of Redis, bytes of the journal and of the embedded store."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from pushlane.backends.pulsar.admin import connect_admin, topic_path
from pushlane.settings import STORE_FILE, Settings

_COMPACTED_S = 120.0
_LOOK_S = 0.5


async def redis_keys(settings: Settings) -> int:
    """Under the namespace's prefix."""
    redis = Redis.from_url(settings.redis_url)
    try:
        names = redis.scan_iter(f"{{{settings.namespace}}}:*", count=1_000)
        return sum([1 async for _ in names])
    finally:
        await redis.aclose()


async def journal_bytes(settings: Settings, compact: bool) -> int:
    """Measure the journal's topic, with what is compacted of it."""
    path = topic_path(f"{settings.namespace}-registry", "tasks")
    async with connect_admin(settings) as admin:
        if compact:
            await admin.call("PUT", f"{path}/compaction", "compact the journal", allow=(409,))
            deadline_s = time.monotonic() + _COMPACTED_S
            while time.monotonic() < deadline_s:
                reply = await admin.call("GET", f"{path}/compaction", "see how far it is")
                if reply.value.get("status") != "RUNNING":
                    break
                await asyncio.sleep(_LOOK_S)
            await admin.call("PUT", f"{path}/unload", "roll the journal over", allow=(409,))
            await admin.call("POST", f"{path}/trim", "trim the journal", allow=(404, 405, 409))
            await asyncio.sleep(_LOOK_S)
        stats: dict[str, Any] = await admin.read(
            f"{path}/internalStats", "measure the journal", dict[str, Any]
        )
    return int(stats["totalSize"]) + int((stats.get("compactedLedger") or {}).get("size", 0))


def store_bytes(folder: Path) -> int:
    """Pages that hold something: a file does not shrink, but its free pages are used again."""
    with closing(sqlite3.connect(folder / STORE_FILE)) as connection:
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
    return int(pages - free) * int(size)
