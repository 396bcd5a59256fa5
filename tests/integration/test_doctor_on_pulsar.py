"""`doctor` on a real Pulsar and a real Redis that are set up badly, and mended where it is ours."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from redis import Redis

from pushlane.backends.backend import Backend, connect
from pushlane.backends.operations import Bounds
from pushlane.backends.pulsar import topic_checks
from pushlane.backends.pulsar.admin import Admin, connect_admin, make_subscription, topic_path
from pushlane.backends.redis import checks as redis_facts
from pushlane.model.presence import Process
from pushlane.operations.examining import examine
from pushlane.settings import Settings
from pushlane.util.checks import Finding
from tests.canary import Canaries
from tests.command import Command, Ran
from tests.contract.reading import until
from tests.own_redis import OwnRedis

pytestmark = pytest.mark.pulsar

_AT_ONCE = Bounds(look_again_s=0.0)
_LANE = "task-a"
_EVICTS = "consumer_backlog_eviction"
# A standalone broker has one bookie, which does not wait for its disk.
_OF_STANDALONE = {"journal-sync", "copies"}


class Deployment(NamedTuple):
    """What a test may change behind pushlane's back."""

    settings: Settings
    backend: Backend
    admin: Admin

    async def set(self, path: str, value: Any) -> None:
        at = f"/namespaces/{self.settings.namespace}/{path}"
        await self.admin.insist("POST", at, f"set {path}", value)

    async def found(self, check: str) -> list[Finding]:
        found, _ = await examine(self.settings, _AT_ONCE)
        return [one for one in found.findings if one.check == check]

    async def until(self, check: str) -> Finding:
        """Return the one finding of a check, as soon as the broker has counted what makes it."""
        [finding] = await until(lambda: self.found(check))
        return finding


@asynccontextmanager
async def deployed(settings: Settings) -> AsyncIterator[Deployment]:
    async with connect(settings) as backend, connect_admin(settings) as admin:
        await backend.broker.open_lane(_LANE)
        yield Deployment(settings, backend, admin)


def doctor(command: Command, settings: Settings, *options: str) -> Ran:
    urls = ("--broker", settings.broker, "--admin-url", settings.admin_url)
    more = ("--redis-url", settings.redis_url, "--namespace", settings.namespace)
    return command("doctor", "--json", *urls, *more, *options)


def checks_of(ran: Ran, severity: str = "") -> set[str]:
    found = ran.json["findings"]
    return {
        one["check"]
        for one in found
        if one["area"] in ("pulsar", "redis") and severity in ("", one["severity"])
    }


def test_a_deployment_as_pushlane_makes_it_has_no_error(
    command: Command, pulsar_settings: Settings
) -> None:
    async def make() -> None:
        async with deployed(pulsar_settings) as made:
            await made.backend.receipts.append([b"a receipt"])

    asyncio.run(make())

    ran = doctor(command, pulsar_settings)

    assert checks_of(ran, "error") == set()
    assert checks_of(ran, "warning") == _OF_STANDALONE
    assert set(ran.json["skipped"]) == {"journal-device", "index-cache"}


_BAD_POLICIES: dict[str, tuple[str, Any]] = {
    "message-ttl": ("messageTTL", 3_600),
    "backlog-quota": (
        "backlogQuota",
        {"limitSize": 1_000_000, "limitTime": -1, "policy": _EVICTS},
    ),
    "subscription-expiry": ("subscriptionExpirationTime", 60),
    "retention": ("retention", {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1}),
    "deduplication": ("deduplication", False),
    "delayed-delivery": (
        "delayedDelivery",
        {"active": False, "tickTime": 1_000, "maxDeliveryDelayInMillis": 10_000},
    ),
    "auto-creation": (
        "autoTopicCreation",
        {"allowAutoTopicCreation": True, "topicType": "non-partitioned"},
    ),
    "inactive-topics": (
        "inactiveTopicPolicies",
        {
            "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
            "maxInactiveDurationSeconds": 86_400,
            "deleteWhileInactive": True,
        },
    ),
}


def test_policies_of_ours_that_others_changed_are_found_and_mended(
    command: Command, pulsar_settings: Settings
) -> None:
    async def spoil() -> None:
        async with deployed(pulsar_settings) as made:
            aged = {"limitTime": 30, "policy": _EVICTS}
            await made.set("backlogQuota?backlogQuotaType=message_age", aged)
            for path, value in _BAD_POLICIES.values():
                await made.set(path, value)

    asyncio.run(spoil())

    before = doctor(command, pulsar_settings)
    mended = doctor(command, pulsar_settings, "--fix")

    assert checks_of(before) >= {*_BAD_POLICIES, "longest-delay"}
    assert before.exit_code == 1
    assert before.json["fixed"] == []
    assert len(mended.json["fixed"]) == len(_BAD_POLICIES) + 1  # one quota by size, one by age
    assert checks_of(mended) & {*_BAD_POLICIES, "longest-delay"} == set()
    assert mended.exit_code == 4


def test_limits_that_somebody_has_set_are_told_and_left(
    command: Command, pulsar_settings: Settings
) -> None:
    async def limit() -> None:
        async with deployed(pulsar_settings) as made:
            rate = {"dispatchThrottlingRateInMsg": 10, "ratePeriodInSecond": 1}
            await made.set("dispatchRate", rate)
            await made.set("subscriptionDispatchRate", rate)
            await made.set("publishRate", {"publishThrottlingRateInMsg": 10})
            await made.set("maxUnackedMessagesPerConsumer", 50)
            await made.set("maxTopicsPerNamespace", 1)

    asyncio.run(limit())

    ran = doctor(command, pulsar_settings, "--fix")

    assert checks_of(ran) >= {"throttling", "unacked-limit", "topic-count"}
    limits = [one["what"] for one in ran.json["findings"] if one["check"] == "throttling"]
    assert len(limits) == 3
    assert ran.json["fixed"] == []


def test_a_subscription_that_nobody_reads_by_goes_with_yes_alone(
    command: Command, pulsar_settings: Settings
) -> None:
    async def subscribe() -> None:
        async with deployed(pulsar_settings) as made:
            path = topic_path(pulsar_settings.namespace, _LANE)
            await make_subscription(made.admin, path, "audit", "subscribe")
            await made.backend.broker.publish(_LANE, [b"one", b"two"])

    asyncio.run(subscribe())

    kept = doctor(command, pulsar_settings, "--fix")
    gone = doctor(command, pulsar_settings, "--fix", "--yes")

    assert "unused-subscriptions" in checks_of(kept)
    assert "add --yes" in kept.stderr
    assert "unused-subscriptions" not in checks_of(gone)
    assert gone.json["fixed"] == [
        f"{pulsar_settings.namespace}/{_LANE}: the subscription audit is removed"
    ]


async def test_what_lies_behind_an_old_unacked_message_is_told(
    pulsar_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_checks, "PINNED_BYTES", 20_000)
    async with deployed(pulsar_settings) as made:
        broker = made.backend.broker
        await broker.publish(_LANE, [b"x" * 1_000 for _ in range(50)])
        assert await made.found("pinned-storage") == []  # it is all backlog
        ready = asyncio.Event()
        reader = await broker.read(_LANE, lambda _: ready.set())
        taken = []
        while len(taken) < 50:
            if one := reader.take():
                taken.append(one)
            else:
                await ready.wait()
                ready.clear()
        await broker.ack(taken[1:])

        finding = await made.until("pinned-storage")

        assert f"{pulsar_settings.namespace}/{_LANE}" in finding.what
        assert "unacked message of pushlane, 0 minutes old" in finding.what
        assert finding.mend.startswith("pushlane why a: resume, cancel or expire it")
        await reader.close()


async def test_a_lane_that_the_broker_holds_back_is_told(pulsar_settings: Settings) -> None:
    async with deployed(pulsar_settings) as made:
        await made.set("maxUnackedMessagesPerConsumer", 5)
        broker = made.backend.broker
        await broker.publish(_LANE, [b"x" for _ in range(50)])
        reader = await broker.read(_LANE, lambda _: None)

        assert _LANE in (await made.until("blocked-lanes")).what
        await reader.close()


async def test_a_lane_whose_subscription_somebody_removed_is_told(
    pulsar_settings: Settings,
) -> None:
    async with deployed(pulsar_settings) as made:
        path = f"{topic_path(pulsar_settings.namespace, _LANE)}/subscription/pushlane"
        await made.admin.insist("DELETE", path, "unsubscribe")

        assert _LANE in (await made.until("lane-subscription")).what


async def test_live_processes_are_seen_twice(
    pulsar_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with deployed(pulsar_settings) as made:
        presence = made.backend.presence
        process = Process(id="a1", kind="dispatcher", pid=7, version="0.1.0")
        await presence.announce(process, 60)

        async def another_speaks(_: float) -> None:
            await presence.announce(Process(id="a1", kind="dispatcher", pid=8, version=""), 60)

        monkeypatch.setattr(redis_facts, "pause", another_speaks)
        found, _ = await examine(pulsar_settings, Bounds())

    texts = {one.check: one.what for one in found.findings}
    assert texts["identity"] == "two processes call themselves a1 (pids 7 and 8)"
    assert "0.1.0: a1 (pid 7)" in texts["versions"]


def test_a_redis_that_evicts_and_forgets(
    command: Command, pulsar_settings: Settings, own_redis: OwnRedis
) -> None:
    with Redis.from_url(own_redis.url) as client:
        client.config_set("maxmemory", "100mb")
        client.config_set("maxmemory-policy", "allkeys-lru")

    ran = doctor(command, pulsar_settings.but(redis_url=own_redis.url))

    severities = {one["check"]: one["severity"] for one in ran.json["findings"]}
    assert severities["redis-eviction"] == "error"
    assert severities["redis-persistence"] == "warning"


def test_a_user_of_redis_without_config_is_told_with_the_command(
    command: Command, pulsar_settings: Settings, own_redis: OwnRedis
) -> None:
    with Redis.from_url(own_redis.url) as client:
        rules = ["~*", "&*", "+@all", "-config", "-eval"]
        client.execute_command("ACL", "SETUSER", "doc", "on", ">secret", *rules)
    url = own_redis.url.replace("redis://", "redis://doc:secret@")

    ran = doctor(command, pulsar_settings.but(redis_url=url))

    found = [one for one in ran.json["findings"] if one["check"] == "redis-permissions"]
    assert [(one["severity"], one["mend"]) for one in found] == [
        ("error", "ACL SETUSER USER +eval"),
        ("note", "ACL SETUSER USER +config|get"),
    ]
    assert "secret" not in ran.stdout + ran.stderr


def test_a_dump_of_a_deployment_holds_no_secret(
    command: Command, pulsar_settings: Settings
) -> None:
    canaries = Canaries()
    urls = ["--broker", pulsar_settings.broker, "--admin-url", pulsar_settings.admin_url]
    urls += ["--redis-url", pulsar_settings.redis_url, "--namespace", pulsar_settings.namespace]
    text = f"recipient,note\n{canaries.word('to')},{canaries.word('text')}\n"
    rows = command.file("rows.csv", text)
    ran = command(
        "submit", rows, "--level", "high", "--silent", "--name", canaries.word("name"), *urls
    )
    assert ran.exit_code == 0, ran.stderr

    async def receive() -> bytes:
        async with deployed(pulsar_settings) as made:
            await made.backend.receipts.append([canaries.word("receipt").encode()])
            return await made.backend.receipts.secret()

    secret = asyncio.run(receive())

    assert command("stats-dump", "all.json.gz", *urls).exit_code == 0

    dumped = gzip.decompress((command.folder / "all.json.gz").read_bytes())
    documents = json.loads(dumped)
    assert canaries.found_in(dumped) == []
    assert secret.hex().encode() not in dumped
    topics = documents["topics"]
    assert f"{pulsar_settings.namespace}/task-{ran.stdout.strip()}" in topics
    assert all(one["stats"] and one["internal_stats"] for one in topics.values())
    assert documents["broker"]["configuration"]["maxUnackedMessagesPerConsumer"] == "50000"
    assert documents["redis"]["redis_version"]
