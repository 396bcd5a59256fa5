"""A Redis that is set up badly in one way: what a real one says, with one change."""

from __future__ import annotations

from typing import Any

import pytest

from pushlane.backends.redis.checks import CHECKS, RedisFacts
from pushlane.settings import Settings
from pushlane.util.checks import Fact, Finding, examined

_INFO: dict[str, Any] = {
    "redis_version": "6.2.14",
    "maxmemory": 0,
    "maxmemory_policy": "noeviction",
    "aof_enabled": 1,
    "aof_last_write_status": "ok",
    "aof_last_bgrewrite_status": "ok",
    "rdb_last_bgsave_status": "ok",
    "role": "master",
    "connected_slaves": 1,
    "connected_clients": 12,
    "maxclients": 10_000,
    "used_memory": 955_032,
}


def _facts(
    ahead_s: float = 0.0, saves: str = "", least: Fact[int] | None = None, **changes: Any
) -> RedisFacts:
    info, least = Fact(_INFO | changes), least or Fact(1)
    return RedisFacts(Settings(), Fact(None), info, Fact(saves), least, Fact(ahead_s), Fact(1), [])


def _found(facts: RedisFacts) -> list[Finding]:
    return examined(CHECKS, facts).findings


def test_a_redis_that_is_set_up_well_passes_each_check() -> None:
    result = examined(CHECKS, _facts())

    assert (result.findings, result.skipped) == ([], {})


@pytest.mark.parametrize(
    ("check", "severity", "changes"),
    [
        ("redis-version", "error", {"redis_version": "5.0.14"}),
        ("redis-version", "warning", {"redis_version": "8.0.0"}),
        ("redis-persistence", "warning", {"aof_enabled": 0}),
        ("redis-persistence", "error", {"aof_last_write_status": "err"}),
        ("redis-persistence", "error", {"rdb_last_bgsave_status": "err"}),
        ("redis-eviction", "error", {"maxmemory": 10**9, "maxmemory_policy": "allkeys-lru"}),
        ("redis-eviction", "error", {"maxmemory": 10**9, "maxmemory_policy": "volatile-ttl"}),
        ("redis-eviction", "warning", {"maxmemory_policy": "allkeys-lru"}),
        ("redis-memory", "warning", {"maxmemory": 1_000_000}),
        ("redis-clients", "warning", {"connected_clients": 9_000}),
        ("redis-replicas", "note", {"connected_slaves": 0}),
        ("redis-replicas", "error", {"role": "slave"}),
        ("redis-failover", "warning", {"least": Fact(0)}),
        ("redis-failover", "note", {"least": Fact(why_not="may not run config|get")}),
        ("redis-clock", "warning", {"ahead_s": 3.0}),
        ("redis-clock", "warning", {"ahead_s": -1.5}),
    ],
)
def test_one_thing_that_is_wrong(check: str, severity: str, changes: dict[str, Any]) -> None:
    [finding] = _found(_facts(**changes))

    assert (finding.check, finding.severity) == (check, severity)
    assert finding.mend


def test_what_a_single_replica_costs_is_said_only_of_a_single_one() -> None:
    [one] = _found(_facts(least=Fact(0)))
    [two] = _found(_facts(least=Fact(0), connected_slaves=2))

    assert "counts, claims and leases" in one.what
    assert "Redis takes no writes and dispatching stops" in one.mend
    assert "dispatching stops" not in two.mend


def test_without_a_replica_only_its_absence_is_noted() -> None:
    [finding] = _found(_facts(least=Fact(0), connected_slaves=0))

    assert finding.check == "redis-replicas"


def test_what_a_restart_loses_is_said_with_how_it_is_kept() -> None:
    [by_snapshots] = _found(_facts(aof_enabled=0, saves="3600 1"))
    [not_at_all] = _found(_facts(aof_enabled=0))

    assert "only by snapshots (save 3600 1)" in by_snapshots.what
    assert "not at all: a restart loses counts of tasks under way, claims" in not_at_all.what


def test_a_redis_that_does_not_answer_is_one_finding_and_skips_the_rest() -> None:
    none: Fact[Any] = Fact(why_not="Redis does not answer")
    away = RedisFacts(Settings(), Fact(why_not="away"), none, none, none, none, none, [])

    result = examined(CHECKS, away)

    assert [(one.check, one.what) for one in result.findings] == [("redis", "away")]
    assert result.passed == []
    assert set(result.skipped.values()) == {"Redis does not answer"}
