"""What a Redis says about how it is set up, and who is live on it. Nothing of ours is changed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from redis.exceptions import NoPermissionError

from pushlane.backends.cells import CellPresence
from pushlane.backends.operations import MOST_UNREAD, Live
from pushlane.backends.redis.access import redis_access
from pushlane.backends.redis.cells import RedisPresenceCells
from pushlane.backends.redis.client import RedisClient
from pushlane.backends.redis.keys import Keys
from pushlane.core.errors import UnknownFormat, Unreachable
from pushlane.model.limits import KIND as LIMIT_KIND
from pushlane.model.limits import limit_faults
from pushlane.model.task_bytes import faults
from pushlane.settings import Settings
from pushlane.util.checks import Fact, fact_of

ANSWER_S = 8.0
_MIN_FORMAT = "format:min"
LEAST = "min-replicas-to-write"
_NO_ANSWER = "Redis does not answer"
_A_PAGE = 200

T = TypeVar("T")

pause = asyncio.sleep


@dataclass(frozen=True)
class RedisFacts:
    """All that was seen. `denied` are the commands that this user may not run."""

    settings: Settings
    answer: Fact[None]
    info: Fact[dict[str, Any]]
    saves: Fact[str]
    least_replicas: Fact[int]
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
        nothing = RedisFacts(settings, answer, none, none, none, none, none, [])
        return nothing, Live.unseen(_NO_ANSWER)
    denied: list[str] = []
    keys = Keys(settings.namespace)
    presence = CellPresence(RedisPresenceCells(client, keys))
    info, saves, least_replicas, ahead_s, scripts = await asyncio.gather(
        _permitted(client.call("INFO", read=dict), "info", denied),
        _permitted(client.call("CONFIG GET", "save", read=_save), "config|get", denied),
        _permitted(client.call("CONFIG GET", LEAST, read=_least), "config|get", denied),
        _permitted(_ahead_s(client), "time", denied),
        _permitted(client.call("EVAL", "return 1", 0), "eval", denied),
    )
    processes, lowest, newer, unread = await asyncio.gather(
        fact_of(presence.list(), ANSWER_S),
        fact_of(client.call("HGET", keys.documents, _MIN_FORMAT, read=_lowest), ANSWER_S),
        fact_of(presence.newer(), ANSWER_S),
        fact_of(_unread(client, keys), ANSWER_S),
    )
    later = processes
    if processes.get_or([]):
        await pause(look_again_s)
        later = await fact_of(presence.list(), ANSWER_S)
    facts = RedisFacts(settings, answer, info, saves, least_replicas, ahead_s, scripts, denied)
    return facts, Live(processes, later, lowest, newer, unread)


async def _permitted(question: Awaitable[T], command: str, denied: list[str]) -> Fact[T]:
    """Ask; note the command when this user may not run it."""

    async def ask() -> T:
        try:
            return await question
        except Unreachable as error:
            if isinstance(error.__cause__, NoPermissionError):
                if command not in denied:
                    denied.append(command)
                raise Unreachable(f"this user of Redis may not run {command}") from error
            raise

    return await fact_of(ask(), ANSWER_S)


async def _ahead_s(client: RedisClient) -> float:
    """Return by how many seconds the clock of Redis is ahead of ours."""
    before = time.time()
    seconds, micros = await client.call("TIME", read=tuple)
    return int(seconds) + int(micros) / 1e6 - (before + time.time()) / 2


async def _unread(client: RedisClient, keys: Keys) -> Sequence[UnknownFormat]:
    """Look at the tasks and limits in pages, up to those of so many that cannot be read."""
    found: list[UnknownFormat] = []
    with client.reach():
        async for task_id, body in client.redis.hscan_iter(keys.tasks, count=_A_PAGE):
            found += faults([(task_id.decode(), body)])
            if len(found) >= MOST_UNREAD:
                break
        limits = f"{LIMIT_KIND}:*"
        async for field, value in client.redis.hscan_iter(keys.documents, limits, _A_PAGE):
            name = field.partition(b":")[2].decode()
            found += limit_faults([(name, value.partition(b"\n")[2])])
    return found


def _save(answer: Any) -> str:
    return _value(answer, "save")


def _least(answer: Any) -> int:
    """Return how many replicas a write needs. Managed Redis may answer with nothing."""
    if not (value := _value(answer, LEAST)):
        raise Unreachable(f"this Redis does not show {LEAST}")
    return int(value)


def _value(answer: Any, name: str) -> str:
    value = dict(answer).get(name, "") if answer else ""
    return value.decode() if isinstance(value, bytes) else str(value)


def _lowest(value: Any) -> int:
    return 1 if value is None else int(value.partition(b"\n")[2])
