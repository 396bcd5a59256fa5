"""What a Redis says about how it is set up, and who is live on it. Nothing of ours is changed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, TypeVar

from redis.exceptions import NoPermissionError

from pushlane.lanes.checks import Fact, fact_of
from pushlane.lanes.errors import Unreachable
from pushlane.lanes.inspection import Live
from pushlane.lanes.redis.access import redis_access
from pushlane.lanes.redis.client import RedisClient
from pushlane.lanes.redis.keys import Keys
from pushlane.lanes.redis.presence import RedisPresence
from pushlane.lanes.settings import Settings

ANSWER_S = 8.0
_MIN_FORMAT = "format:min"
_NO_ANSWER = "Redis does not answer"

T = TypeVar("T")

pause = asyncio.sleep


@dataclass(frozen=True)
class RedisFacts:
    """All that was seen. `denied` are the commands that this user may not run."""

    settings: Settings
    answer: Fact[None]
    info: Fact[dict[str, Any]]
    saves: Fact[str]
    ahead_s: Fact[float]
    scripts: Fact[Any]
    denied: list[str]

    def number(self, name: str) -> float:
        """Return a number that INFO shows, 0 when it does not."""
        value = self.info.get().get(name, 0)
        return float(value) if isinstance(value, int | float) else 0.0


async def collect(settings: Settings, look_again_s: float) -> tuple[RedisFacts, Live]:
    """Ask a Redis for all that checks look at, and for the processes that are live."""
    client = RedisClient(settings.redis_url, redis_access(settings))
    try:
        return await _collect(client, settings, look_again_s)
    finally:
        await client.close()


async def _collect(
    client: RedisClient, settings: Settings, look_again_s: float
) -> tuple[RedisFacts, Live]:
    answer = await fact_of(client.ping(), ANSWER_S, f"Redis at {client.where}")
    if answer.why_not:
        none: Fact[Any] = Fact(why_not=_NO_ANSWER)
        nothing = RedisFacts(settings, answer, none, none, none, none, [])
        return nothing, Live(none, none, none)
    denied: list[str] = []
    keys = Keys(settings.namespace)
    info, saves, ahead_s, scripts, processes, lowest = await asyncio.gather(
        _permitted(client.call("INFO", read=dict), "info", denied),
        _permitted(client.call("CONFIG GET", "save", read=_save), "config|get", denied),
        _permitted(_ahead_s(client), "time", denied),
        _permitted(client.call("EVAL", "return 1", 0), "eval", denied),
        fact_of(RedisPresence(client, keys).list(), ANSWER_S),
        fact_of(client.call("HGET", keys.documents, _MIN_FORMAT, read=_lowest), ANSWER_S),
    )
    later = processes
    if processes.get_or([]):
        await pause(look_again_s)
        later = await fact_of(RedisPresence(client, keys).list(), ANSWER_S)
    facts = RedisFacts(settings, answer, info, saves, ahead_s, scripts, denied)
    return facts, Live(processes, later, lowest)


async def _permitted(question: Awaitable[T], command: str, denied: list[str]) -> Fact[T]:
    """Ask; note the command when this user may not run it."""

    async def ask() -> T:
        try:
            return await question
        except Unreachable as error:
            if isinstance(error.__cause__, NoPermissionError):
                denied.append(command)
                raise Unreachable(f"this user of Redis may not run {command}") from error
            raise

    return await fact_of(ask(), ANSWER_S)


async def _ahead_s(client: RedisClient) -> float:
    """Return by how many seconds the clock of Redis is ahead of ours."""
    before = time.time()
    seconds, micros = await client.call("TIME", read=tuple)
    return int(seconds) + int(micros) / 1e6 - (before + time.time()) / 2


def _save(answer: Any) -> str:
    value = dict(answer).get("save", "") if answer else ""
    return value.decode() if isinstance(value, bytes) else str(value)


def _lowest(value: Any) -> int:
    return 1 if value is None else int(value.partition(b"\n")[2])
