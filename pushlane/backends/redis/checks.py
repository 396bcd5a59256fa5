"""Checks of a Redis: what it forgets at a restart, what it evicts, and how much room it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pushlane.lanes.redis.facts import LEAST, RedisFacts
from pushlane.util.checks import Check, Remark, outside

AREA = "redis"
OLDEST, TRIED = (6, 2), (7,)
CLOCK_S = 1.0
FULL = 0.8
_LOST = "counts of tasks under way, claims (ledger_window_s) and what caps have counted"
_NOT_BACK = "counts, claims and leases"
_MIB = 1024**2


def _reached(facts: RedisFacts) -> Iterator[Remark]:
    if why := facts.answer.why_not:
        yield Remark("error", why, "pushlane up, or check --redis-url / PUSHLANE_REDIS_URL")


def _permissions(facts: RedisFacts) -> Iterator[Remark]:
    if facts.answer.why_not:
        facts.info.get()
    for command in facts.denied:
        needed = command in ("eval", "time")
        yield Remark(
            "error" if needed else "note",
            f"this user of Redis may not run {command}",
            f"ACL SETUSER USER +{command}",
        )


def _version(facts: RedisFacts) -> Iterator[Remark]:
    yield from outside("Redis", str(facts.info.get().get("redis_version", "")), OLDEST, TRIED)


def _clock(facts: RedisFacts) -> Iterator[Remark]:
    ahead_s = facts.ahead_s.get()
    if abs(ahead_s) >= CLOCK_S:
        whose = "ahead of" if ahead_s > 0 else "behind"
        what = f"the clock of Redis is {abs(ahead_s):.1f} s {whose} this host's"
        yield Remark("warning", what, "timedatectl set-ntp true, on the host that is off")


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


def _eviction(facts: RedisFacts) -> Iterator[Remark]:
    policy = str(facts.info.get().get("maxmemory_policy", "noeviction"))
    if policy == "noeviction":
        return
    most = facts.number("maxmemory")
    when = f"at {most / _MIB:,.0f} MiB" if most else "as soon as maxmemory is set"
    yield Remark(
        "error" if most else "warning",
        f"Redis evicts keys ({policy}) {when}",
        "redis-cli CONFIG SET maxmemory-policy noeviction, and the same in redis.conf",
    )


def _memory(facts: RedisFacts) -> Iterator[Remark]:
    most, used = facts.number("maxmemory"), facts.number("used_memory")
    if most and used > FULL * most:
        yield Remark(
            "warning",
            f"Redis has {used / _MIB:,.0f} of {most / _MIB:,.0f} MiB in use",
            "raise maxmemory, or lower task_retention_s, ledger_window_s or recipient_window_s",
        )


def _clients(facts: RedisFacts) -> Iterator[Remark]:
    most, now = facts.number("maxclients"), facts.number("connected_clients")
    if most and now > FULL * most:
        what = f"Redis has {now:g} of at most {most:g} clients"
        yield Remark("warning", what, "raise maxclients in redis.conf")


def _replicas(facts: RedisFacts) -> Iterator[Remark]:
    if facts.info.get().get("role") == "slave":
        yield Remark(
            "error",
            "this Redis is a replica, which takes no writes",
            "give the URL of its master, or of Sentinel, as PUSHLANE_REDIS_URL",
        )
    elif not facts.number("connected_slaves"):
        what = "Redis has no replica: while its machine is away, nothing is dispatched"
        yield Remark("note", what, "run one with Sentinel, where that matters")


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
            f"{LEAST} is 0: a failover may lose the last writes (tasks come back from the journal, "
            f"{_NOT_BACK} do not), and a master that is cut off goes on taking writes which the "
            "new one never gets",
            f"redis-cli CONFIG SET {LEAST} 1, on master and replicas, and the same in redis.conf"
            + (cost if replicas == 1 else ""),
        )


def _check(
    name: str, looks_at: str, why: str, look: Callable[[RedisFacts], Iterator[Remark]]
) -> Check[RedisFacts]:
    return Check(name, AREA, looks_at, why, look)


CHECKS = (
    _check("redis", "that Redis answers", "without the registry nothing is dispatched", _reached),
    _check(
        "redis-permissions",
        "which commands this user may run",
        "a command that is refused stops the registry, or a check",
        _permissions,
    ),
    _check("redis-version", "the version of Redis: 6.2 to 7", "others were not tried", _version),
    _check(
        "redis-clock",
        f"the clock of Redis against ours: less than {CLOCK_S:g} s apart",
        "leases, caps and windows go by its clock, schedules and expiries by ours",
        _clock,
    ),
    _check(
        "redis-persistence",
        "appendonly, save, and whether the last write went well",
        "tasks come back from the journal; counts, claims and caps do not",
        _persistence,
    ),
    _check(
        "redis-eviction",
        "maxmemory-policy: noeviction",
        "an evicted key is a task, a count or a claim that is lost, and nobody is told",
        _eviction,
    ),
    _check(
        "redis-memory",
        "memory in use against maxmemory",
        "at the limit Redis refuses writes, and dispatching stops",
        _memory,
    ),
    _check(
        "redis-clients",
        "clients against maxclients",
        "each process takes up to 32 connections; who gets none does not start",
        _clients,
    ),
    _check("redis-replicas", "role and replicas", "a lost machine stops all", _replicas),
    _check(
        "redis-failover",
        "min-replicas-to-write: at least 1 where there are replicas",
        "without it a failover may lose the last writes, and a master cut off takes more",
        _failover,
    ),
)
