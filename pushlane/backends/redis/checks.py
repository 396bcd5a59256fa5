"""Checks of a Redis: what it forgets at a restart, what it evicts, and how much room it has.

What it says about how it is set up is collected first, with who is live on it. Nothing is changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
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
from pushlane.util.checks import Check, Fact, Remark, fact_of, outside

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
    async with RedisClient(settings.redis_url, redis_access(settings)) as client:
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
            if not isinstance(error.__cause__, NoPermissionError):
                raise
            if command not in denied:
                denied.append(command)
            raise Unreachable(f"this user of Redis may not run {command}") from error

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


AREA = "redis"
OLDEST, TRIED = (6, 2), (7,)
CLOCK_S = 1.0
FULL = 0.8
_LOST = "counts of tasks under way, claims (ledger_window_s) and what caps have counted"
_MIB = 1024**2

Look = Callable[[RedisFacts], Iterator[Remark]]


def _check(name: str, looks_at: str, why: str) -> Callable[[Look], Check[RedisFacts]]:
    """Make a function a check of this area."""
    return lambda look: Check(name, AREA, looks_at, why, look)


@_check("redis", "that Redis answers", "without the registry nothing is dispatched")
def _reached(facts: RedisFacts) -> Iterator[Remark]:
    if why := facts.answer.why_not:
        yield Remark("error", why, "pushlane up, or check --redis-url / PUSHLANE_REDIS_URL")


@_check(
    "redis-permissions",
    "which commands this user may run",
    "a command that is refused stops the registry, or a check",
)
def _permissions(facts: RedisFacts) -> Iterator[Remark]:
    if facts.answer.why_not:
        facts.info.get()
    for command in facts.denied:
        needed = command in ("eval", "time")
        what = f"this user of Redis may not run {command}"
        yield Remark("error" if needed else "note", what, f"ACL SETUSER USER +{command}")


@_check("redis-version", "the version of Redis: 6.2 to 7", "others were not tried")
def _version(facts: RedisFacts) -> Iterator[Remark]:
    yield from outside("Redis", str(facts.info.get().get("redis_version", "")), OLDEST, TRIED)


@_check(
    "redis-clock",
    f"the clock of Redis against ours: less than {CLOCK_S:g} s apart",
    "leases, caps and windows go by its clock, schedules and expiries by ours",
)
def _clock(facts: RedisFacts) -> Iterator[Remark]:
    ahead_s = facts.ahead_s.get()
    if abs(ahead_s) >= CLOCK_S:
        whose = "ahead of" if ahead_s > 0 else "behind"
        what = f"the clock of Redis is {abs(ahead_s):.1f} s {whose} this host's"
        yield Remark("warning", what, "timedatectl set-ntp true, on the host that is off")


@_check(
    "redis-persistence",
    "appendonly, save, and whether the last write went well",
    "tasks come back from Pulsar; counts, claims and caps do not",
)
def _persistence(facts: RedisFacts) -> Iterator[Remark]:
    info = facts.info.get()
    mend = "redis-cli CONFIG SET appendonly yes, and appendonly yes in redis.conf"
    if not info.get("aof_enabled"):
        saves = facts.saves.get()
        kept = f"only by snapshots (save {saves})" if saves else "not at all"
        what = f"Redis keeps its data {kept}: a restart loses {_LOST}"
        yield Remark("warning", what, mend)
    for name, about in (
        ("aof_last_write_status", "append-only file"),
        ("aof_last_bgrewrite_status", "append-only file"),
        ("rdb_last_bgsave_status", "snapshot"),
    ):
        if info.get(name, "ok") != "ok":
            what = f"the last write of the {about} failed ({name}: {info[name]})"
            yield Remark("error", what, "look at the disk and the log of Redis")


@_check(
    "redis-eviction",
    "maxmemory-policy: noeviction",
    "an evicted key is a task, a count or a claim that is lost without notice",
)
def _eviction(facts: RedisFacts) -> Iterator[Remark]:
    policy = str(facts.info.get().get("maxmemory_policy", "noeviction"))
    if policy == "noeviction":
        return
    most = facts.number("maxmemory")
    when = f"at {most / _MIB:,.0f} MiB" if most else "as soon as maxmemory is set"
    what = f"Redis evicts keys ({policy}) {when}"
    mend = "redis-cli CONFIG SET maxmemory-policy noeviction, and the same in redis.conf"
    yield Remark("error" if most else "warning", what, mend)


@_check(
    "redis-memory",
    "memory in use against maxmemory",
    "at the limit Redis refuses writes, and dispatching stops",
)
def _memory(facts: RedisFacts) -> Iterator[Remark]:
    most, used = facts.number("maxmemory"), facts.number("used_memory")
    if most and used > FULL * most:
        what = f"Redis has {used / _MIB:,.0f} of {most / _MIB:,.0f} MiB in use"
        mend = "raise maxmemory, or lower task_retention_s, ledger_window_s or recipient_window_s"
        yield Remark("warning", what, mend)


@_check(
    "redis-clients",
    "clients against maxclients",
    "each process takes up to 32 connections; a process that gets none does not start",
)
def _clients(facts: RedisFacts) -> Iterator[Remark]:
    most, now = facts.number("maxclients"), facts.number("connected_clients")
    if most and now > FULL * most:
        what = f"Redis has {now:g} of at most {most:g} clients"
        yield Remark("warning", what, "raise maxclients in redis.conf")


@_check("redis-replicas", "role and replicas", "a lost machine stops all")
def _replicas(facts: RedisFacts) -> Iterator[Remark]:
    if facts.info.get().get("role") == "slave":
        what = "this Redis is a replica, which takes no writes"
        mend = "give the URL of its master, or of Sentinel, as PUSHLANE_REDIS_URL"
        yield Remark("error", what, mend)
    elif not facts.number("connected_slaves"):
        what = "Redis has no replica: while its machine is away, nothing is dispatched"
        yield Remark("note", what, "run one with Sentinel, where that matters")


@_check(
    "redis-failover",
    "min-replicas-to-write: at least 1 where there are replicas",
    "without it a failover may lose the last writes, and a master cut off takes more",
)
def _failover(facts: RedisFacts) -> Iterator[Remark]:
    seen = facts.info.get()
    if seen.get("role") == "slave" or not (replicas := facts.number("connected_slaves")):
        return
    if why := facts.least_replicas.why_not:
        yield Remark("note", f"{LEAST} could not be looked at: {why}", f"set {LEAST} to 1")
    elif not facts.least_replicas.get():
        cost = "; with this one replica away, Redis takes no writes and dispatching stops"
        yield Remark(
            "warning",
            f"{LEAST} is 0: a failover may lose the last writes (tasks come back from the task "
            "topic, counts, claims and leases do not), and a master that is cut off keeps taking "
            "writes which the new one never gets",
            f"redis-cli CONFIG SET {LEAST} 1, on master and replicas, and the same in redis.conf"
            + (cost if replicas == 1 else ""),
        )


_OF_ACCESS = (_reached, _permissions, _version, _clock)
CHECKS = (*_OF_ACCESS, _persistence, _eviction, _memory, _clients, _replicas, _failover)
