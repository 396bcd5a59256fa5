"""What lies in a store of a dead address: never the address, with a key or without one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from pushlane.backends.redis import connect_redis
from pushlane.core.push import Outcome, Push
from pushlane.dispatcher.guards.recipient_guard import DeadAddressRecorder
from pushlane.dispatcher.stats import Stats
from pushlane.model.recipients import DeadAddressQuery
from pushlane.settings import Settings
from tests.backends.redis.memory_journal import MemoryJournal
from tests.core.support import backend_in
from tests.own_redis import OwnRedis
from tests.recipients.test_dead_addresses import DEAD, KEY

pytestmark = pytest.mark.parametrize("key", [None, KEY], ids=["without a key", "with one"])

APP = "shop-of-this-test"  # which lies there, so that the search is known to find things


async def record(backend: Any, key: str | None) -> None:
    settings = Settings(address_key=key)
    recorder = DeadAddressRecorder(
        backend, "fcm", settings, Stats(), lambda: 1_795_262_400_000, lambda: None
    )
    push = Push("t", 1, "anna", addresses={"fcm": DEAD})
    job: Any = SimpleNamespace(push=push, task=SimpleNamespace(app=APP), dispatched_at_ms=1)
    recorder.hear([job], [Outcome.gone("UNREGISTERED")])
    running = asyncio.create_task(recorder.run())
    await recorder.drain(60.0)
    running.cancel()
    [one] = (await backend.dead_addresses.page(DeadAddressQuery())).addresses
    assert bool(one.sealed) == bool(key)


def found_in(folder: Path, text: str) -> bool:
    kept = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    return any(text.encode() in body for body in kept)


async def test_no_file_of_the_embedded_store_holds_it(tmp_path: Path, key: str | None) -> None:
    async with backend_in(tmp_path) as (backend, _):
        await record(backend, key)

        assert found_in(tmp_path, APP)
        assert not found_in(tmp_path, DEAD)


async def test_no_copy_of_redis_holds_it(
    own_redis: OwnRedis, tmp_path: Path, key: str | None
) -> None:
    async with connect_redis(own_redis.url, "test", MemoryJournal(), 600.0) as ports:
        await record(ports, key)
    with redis.Redis.from_url(own_redis.url) as client:
        client.config_set("rdbcompression", "no")
    own_redis.save()

    assert found_in(tmp_path, APP)
    assert not found_in(tmp_path, DEAD)
