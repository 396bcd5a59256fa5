"""Faults that happen to the services and to the network, disk and sink that they are reached by."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from bench.faults.kills import kill_at_random
from bench.faults.stream import Stream
from bench.proxy import Proxy

_CUT_S = 1.0
_STALL_S = 5.0
_LONG_STALL_S = 65.0  # the broker gives up on a silent client after 30 to 60 s
_REDIS_AWAY_S = 12.0  # over the 10 s that a reply may take
_SINK_AWAY_S = 1.0
_DISK_FULL_S = 2.0
_TINY_TASKS = 20
_FILL_AT_ONCE = 64 * 1024


async def kill_broker(stream: Stream) -> float:
    await stream.services.restart_pulsar()
    return time.time()


async def kill_broker_of_many(stream: Stream) -> float:
    """Each lane has a backlog, and each has to be opened again."""
    await stream.backlogged()
    return await kill_broker(stream)


async def kill_redis(stream: Stream) -> float:
    await stream.services.restart_redis()
    return time.time()


async def freeze_redis(stream: Stream) -> float:
    await stream.services.freeze_redis(_REDIS_AWAY_S)
    return time.time()


async def empty_redis(stream: Stream) -> float:
    stream.services.empty_redis()
    return time.time()


async def empty_redis_and_kill(stream: Stream) -> float:
    """Empty Redis, which knew what had been delivered, and kill who would have acked it."""
    stream.services.empty_redis()
    return await kill_at_random(stream)


async def cut_broker(stream: Stream) -> float:
    return await _cut(stream.services.broker_path)


async def stall_broker(stream: Stream) -> float:
    return await stall(stream.services.broker_path, _STALL_S)


async def stall_broker_long(stream: Stream) -> float:
    return await stall(stream.services.broker_path, _LONG_STALL_S)


async def cut_redis(stream: Stream) -> float:
    return await _cut([stream.services.redis_path])


async def stall_redis(stream: Stream) -> float:
    return await stall([stream.services.redis_path], _REDIS_AWAY_S)


async def _cut(paths: Sequence[Proxy]) -> float:
    for path in paths:
        path.cut()
    await asyncio.sleep(_CUT_S)
    return _healed(paths)


async def stall(paths: Sequence[Proxy], lasting_s: float) -> float:
    for path in paths:
        path.stall()
    await asyncio.sleep(lasting_s)
    return _healed(paths)


def _healed(paths: Sequence[Proxy]) -> float:
    for path in paths:
        path.heal()
    return time.time()


async def sink_429(stream: Stream) -> float:
    return await _misbehave(stream, "429")


async def sink_500(stream: Stream) -> float:
    return await _misbehave(stream, "500")


async def sink_reset(stream: Stream) -> float:
    return await _misbehave(stream, "reset")


async def sink_hang(stream: Stream) -> float:
    return await _misbehave(stream, "hang")


async def sink_cut(stream: Stream) -> float:
    return await _misbehave(stream, "cut")


async def _misbehave(stream: Stream, how: str) -> float:
    await stream.oracle.behave(how, share=0.5)
    await asyncio.sleep(_SINK_AWAY_S)
    await stream.oracle.behave()
    return time.time()


async def fill_disk(stream: Stream) -> float:
    """Not a byte is left beside the store for a while."""
    filler = stream.data_dir / "filler"
    await asyncio.to_thread(_fill, filler)
    try:
        await asyncio.sleep(_DISK_FULL_S)
    finally:
        filler.unlink()
    return time.time()


def _fill(filler: Path) -> None:
    with filler.open("wb", buffering=0) as file:
        for size in (_FILL_AT_ONCE, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:  # full
                continue


async def churn(stream: Stream) -> float:
    """Many tiny tasks at once, written and waited for."""
    started_s = time.time()
    await asyncio.gather(*(stream.feeder.write() for _ in range(_TINY_TASKS)))
    return started_s
