"""A broker that is set up badly in one way: the recorded answer of a real one, with one change."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pushlane.backends.pulsar import checks
from pushlane.backends.pulsar.checks import CLIENT
from pushlane.backends.pulsar.examiner import CHECKS, _open, _plain
from pushlane.backends.pulsar.facts import NO_BOOKIE, Refusal, Web, sizes_in
from pushlane.backends.pulsar.topic_checks import PINNED_BYTES
from pushlane.settings import Settings
from pushlane.util.checks import Fact, examined
from pushlane.util.texts import Secret
from tests.backends.pulsar.recorded import (
    JOURNAL,
    LANES,
    RECEIPTS,
    answer,
    configured,
    found,
    skipped,
    sound,
    topic,
    with_policies,
)

_COARSE = {"active": True, "tickTime": 1_000}
_LIMITED = {"cluster": {"dispatchThrottlingRateInMsg": 5, "ratePeriodInSecond": 1}}
_ON_PULSAR = Settings(broker="pulsar://127.0.0.1:6650")


def test_a_broker_that_is_set_up_well_has_notes_at_most() -> None:
    checks = [check for check in CHECKS if check.area == "pulsar"]

    result = examined(checks, sound())

    assert {one.check for one in result.findings} == {"namespaces", "index-cache"}
    assert {one.severity for one in result.findings} == {"note"}
    assert list(result.skipped) == ["journal-device"]


@pytest.mark.parametrize(
    ("check", "name", "value", "severity"),
    [
        ("throttling", "dispatchThrottlingRatePerTopicInMsg", "100", "warning"),
        ("throttling", "brokerPublisherThrottlingMaxByteRate", "1000000", "warning"),
        ("unacked-limit", "maxUnackedMessagesPerConsumer", "200", "warning"),
        ("unacked-limit", "maxUnackedMessagesPerSubscription", "300", "warning"),
        ("copies", "managedLedgerDefaultAckQuorum", "1", "warning"),
        ("copies", "managedLedgerDefaultAckQuorum", "3", "warning"),
        ("copies", "managedLedgerDefaultEnsembleSize", "5", "error"),
        ("subscription-expiry", "subscriptionExpirationTimeMinutes", "60", "error"),
        ("dedup-window", "brokerDeduplicationProducerInactivityTimeoutMinutes", "60", "error"),
        ("empty-reads", "managedLedgerNewEntriesCheckDelayInMillis", "5000", "warning"),
        ("message-size", "maxMessageSize", "1048576", "error"),
        ("keep-alive", "keepAliveIntervalSeconds", "300", "warning"),
        ("metadata-root", "metadataStoreUrl", "zk:zk1:2181,zk2:2181", "note"),
        ("topic-count", "maxTopicsPerNamespace", "1", "error"),
    ],
)
def test_the_configuration_of_the_broker(check: str, name: str, value: str, severity: str) -> None:
    assert found(sound(), check) == []

    findings = found(configured(sound(), **{name: value}), check)

    assert findings
    assert {one.severity for one in findings} == {severity}
    assert all(one.mend for one in findings)
    assert not any(one.can_fix for one in findings) or check == "subscription-expiry"


@pytest.mark.parametrize(
    ("check", "key", "value", "severity", "can_fix"),
    [
        ("message-ttl", "message_ttl_in_seconds", 60, "error", True),
        ("deduplication", "deduplicationEnabled", False, "error", True),
        ("delayed-delivery", "delayed_delivery_policies", {"active": False}, "error", True),
        ("delayed-delivery", "delayed_delivery_policies", _COARSE, "warning", True),
        ("auto-creation", "autoTopicCreationOverride", None, "warning", True),
        (
            "inactive-topics",
            "inactive_topic_policies",
            {"inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up"},
            "error",
            True,
        ),
        ("retention", "retention_policies", None, "warning", True),
        ("subscription-expiry", "subscription_expiration_time_minutes", 5, "error", True),
        ("throttling", "publishMaxMessageRate", _LIMITED, "warning", False),
        ("throttling", "subscriptionDispatchRate", _LIMITED, "warning", False),
        ("unacked-limit", "max_unacked_messages_per_consumer", 50, "warning", False),
        ("copies", "persistence", {"bookkeeperAckQuorum": 1}, "warning", False),
        ("topic-count", "max_topics_per_namespace", 1, "error", False),
    ],
)  # fmt: skip
def test_the_policies_of_the_lanes(
    check: str, key: str, value: Any, severity: str, can_fix: bool
) -> None:
    findings = found(with_policies(sound(), LANES, **{key: value}), check)

    assert [(one.severity, one.can_fix) for one in findings] == [(severity, bool(can_fix))]
    assert LANES in findings[0].what


def test_a_longest_delay_that_is_shorter_than_a_retry() -> None:
    policy = {"active": True, "tickTime": 100, "maxDeliveryDelayInMillis": 10_000}
    facts = with_policies(sound(), LANES, delayed_delivery_policies=policy)

    [finding] = found(facts, "longest-delay")

    assert "at most 10 s, and retry_longest_s is 300" in finding.what


def test_a_delay_that_is_limited_where_nothing_is_delayed_is_no_matter() -> None:
    policy = {"active": True, "tickTime": 100, "maxDeliveryDelayInMillis": 10_000}
    facts = with_policies(sound(), JOURNAL, delayed_delivery_policies=policy)

    assert found(facts, "longest-delay") == []


@pytest.mark.parametrize(
    ("check", "namespace", "key", "changed", "mend"),
    [
        (
            "retention",
            JOURNAL,
            "retention_policies",
            {"retentionTimeInMinutes": 5, "retentionSizeInMB": 5},
            f"set-retention {JOURNAL} --time -1 --size 32M",
        ),
        (
            "inactive-topics",
            LANES,
            "inactive_topic_policies",
            {"deleteWhileInactive": True},
            f"set-inactive-topic-policies {LANES} --disable-delete-while-inactive "
            "--max-inactive-duration 60s --delete-mode delete_when_no_subscriptions",
        ),
    ],
)
def test_the_command_that_mends_a_policy_sets_what_pushlane_sets(
    check: str, namespace: str, key: str, changed: dict[str, Any], mend: str
) -> None:
    [finding] = found(with_policies(sound(), namespace, **{key: changed}), check)

    assert finding.mend == f"pulsar-admin namespaces {mend}"


@pytest.mark.parametrize(
    ("policy", "severity"),
    [("consumer_backlog_eviction", "error"), ("producer_exception", "warning")],
)
def test_another_backlog_quota_of_the_lanes(policy: str, severity: str) -> None:
    quota = {"limitSize": 1_000, "limitTime": -1, "policy": policy}
    facts = with_policies(sound(), LANES, backlog_quota_map={"destination_storage": quota})

    [finding] = found(facts, "backlog-quota")

    assert (finding.severity, finding.can_fix) == (severity, True)
    assert "limitSize 1000" in finding.what


def test_an_eviction_by_age_is_an_error_of_its_own() -> None:
    quotas = answer("policies")["lanes"]["backlog_quota_map"]
    aged = {"message_age": {"limitTime": 60, "policy": "consumer_backlog_eviction"}}
    facts = with_policies(sound(), LANES, backlog_quota_map=quotas | aged)

    assert [one.what for one in found(facts, "backlog-quota")] == [
        f"{LANES}: pushes that wait for longer than 60 s are dropped"
    ]


def test_an_eviction_that_pushlane_itself_sets_is_none_to_tell() -> None:
    """Of receipts that nobody takes over, a full log drops the oldest, as the setting says."""
    facts = sound()
    wanted = {"limitSize": 1024**3, "limitTime": -1, "policy": "consumer_backlog_eviction"}
    common = answer("policies")["lanes"]
    facts.policies[RECEIPTS] = Fact(common | {"backlog_quota_map": {"destination_storage": wanted}})

    assert found(facts, "backlog-quota") == []


def test_a_default_quota_that_evicts_reaches_the_journal_alone() -> None:
    policy = {"backlogQuotaDefaultRetentionPolicy": "consumer_backlog_eviction"}
    facts = configured(sound(), **policy, backlogQuotaDefaultLimitGB="10")

    [finding] = found(facts, "default-quota")

    assert finding.what.startswith(JOURNAL)
    assert finding.severity == "error"


@pytest.mark.parametrize(
    ("version", "severity"), [("2.10.0", "error"), ("4.2.0", "warning"), ("5.0.0", "warning")]
)
def test_the_version_of_the_broker(version: str, severity: str) -> None:
    facts = sound()
    facts.web = Fact(Web(version, 0.0))

    assert [one.severity for one in found(facts, "broker-version")] == [severity]


def test_the_version_of_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(sound(), "client-version") == []
    monkeypatch.setattr("pushlane.backends.pulsar.checks.version", lambda _: "3.2.0")

    [finding] = found(sound(), "client-version")

    assert finding.what == f"{CLIENT} is 3.2.0; it has to be 3.13 or later"


@pytest.mark.parametrize(("ahead_s", "whose"), [(60.0, "ahead of"), (-7.0, "behind")])
def test_a_clock_that_is_off_is_told_by_how_much_and_whose(ahead_s: float, whose: str) -> None:
    facts = sound()
    facts.web = Fact(Web("4.0.8", ahead_s))

    [finding] = found(facts, "broker-clock")

    assert finding.what == f"the broker's clock is {abs(ahead_s):.0f} s {whose} this host's"


def test_a_right_that_is_missing_is_named_once_with_the_command() -> None:
    facts = sound()
    facts.refusals = [
        Refusal("read the policies of it", "tenant admin", 403, LANES),
        Refusal("read the policies of it", "tenant admin", 403, JOURNAL),
        Refusal("read its configuration", "superuser", 401),
        Refusal("list the bookies", "superuser", 401),
        Refusal("list the topics of it", "consume", 403, LANES),
        Refusal("list the topics of it", "consume", 403, JOURNAL),
        Refusal("measure topics of it", "consume", 403, JOURNAL),
    ]

    findings = found(facts, "permissions")

    assert [(one.severity, one.mend) for one in findings] == [
        ("error", "pulsar-admin tenants update pushlane --admin-roles ROLE,OTHERS"),
        ("note", "run doctor with an operator's token, of a role in superUserRoles of broker.conf"),
        (
            "error",
            f"pulsar-admin namespaces grant-permission {LANES} --role ROLE "
            "--actions produce,consume",
        ),
        (
            "error",
            f"pulsar-admin namespaces grant-permission {JOURNAL} --role ROLE "
            "--actions produce,consume",
        ),
    ]


def test_a_token_that_travels_in_the_clear() -> None:
    far = {"broker": "pulsar://broker:6650", "admin_url": "http://broker:8080"}
    secret = {"pulsar_token": Secret("s3cr3t")}

    findings = found(sound(Settings(**far, **secret)), "token-in-clear")

    assert len(findings) == 2
    assert not any("s3cr3t" in one.what for one in findings)
    assert found(sound(Settings(**far)), "token-in-clear") == []
    assert found(sound(_ON_PULSAR.but(**secret)), "token-in-clear") == []


def test_a_bookie_that_was_named_and_does_not_answer() -> None:
    facts = sound()
    facts.bookie = Fact(why_not="no bookie answers at http://127.0.0.1:1")

    [finding] = found(facts, "bookie")

    assert (finding.severity, finding.what) == ("error", facts.bookie.why_not)


def test_bookies_that_do_not_wait_for_their_disks() -> None:
    facts = sound()
    facts.bookie = Fact(answer("bookie"))
    assert [one.severity for one in found(facts, "journal-sync")] == ["error"]

    facts.bookie = Fact(why_not=NO_BOOKIE)
    assert skipped(facts, "journal-sync") == NO_BOOKIE

    standalone = configured(facts, metadataStoreUrl=answer("configuration")["metadataStoreUrl"])
    assert [one.severity for one in found(standalone, "journal-sync")] == ["warning"]


def test_a_journal_on_the_device_of_the_ledgers(tmp_path: Path) -> None:
    facts = sound()
    facts.bookie = Fact({"journalDirectories": str(tmp_path), "ledgerDirectories": str(tmp_path)})

    assert [one.severity for one in found(facts, "journal-device")] == ["warning"]
    facts.bookie = Fact({"journalDirectories": "/proc", "ledgerDirectories": str(tmp_path)})
    assert found(facts, "journal-device") == []


@pytest.mark.parametrize(
    ("size", "severities"),
    [("", ["note"]), ("268435456", ["warning"]), ("536870912", ["warning"]), ("4294967296", [])],
)
def test_the_cache_of_the_ledgers_index(size: str, severities: list[str]) -> None:
    facts = sound()
    facts.bookie = Fact(answer("bookie") | {"dbStorage_rocksDB_blockCacheSize": size})

    assert [one.severity for one in found(facts, "index-cache")] == severities


@pytest.mark.parametrize(
    ("mebibytes", "severities"), [("", []), ("64", ["warning"]), ("256", []), ("1024", [])]
)
def test_the_cache_of_what_is_read_ahead(mebibytes: str, severities: list[str]) -> None:
    facts = sound()
    enough = {"dbStorage_rocksDB_blockCacheSize": "4294967296"}
    facts.bookie = Fact(
        answer("bookie") | enough | {"dbStorage_readAheadCacheMaxSizeMb": mebibytes}
    )

    assert [one.severity for one in found(facts, "index-cache")] == severities


def test_a_journal_on_a_disk_that_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turning = tmp_path.stat().st_dev
    monkeypatch.setattr(checks, "is_rotational", lambda device: device == turning)
    facts = sound()
    facts.bookie = Fact({"journalDirectories": str(tmp_path), "ledgerDirectories": "/proc"})

    [finding] = found(facts, "journal-device")

    assert finding.severity == "warning"
    assert "SSD" in finding.mend


def test_a_quota_that_is_kept_and_drops_pushes() -> None:
    facts = sound()
    facts = replace(facts, settings=facts.settings.but(lane_quota_bytes="keep"))
    own = {"limitSize": 5, "limitTime": -1, "policy": "producer_exception"}
    policies = facts.policies[LANES].get() or {}
    facts.policies[LANES] = Fact({**policies, "backlog_quota_map": {"destination_storage": own}})
    assert found(facts, "backlog-quota") == []

    own["policy"] = "consumer_backlog_eviction"
    [finding] = found(facts, "backlog-quota")
    assert finding.severity == "error"
    assert "dropped at its quota" in finding.what


def test_too_many_topics_and_too_few_bundles() -> None:
    facts = sound()
    facts.topics[LANES] = Fact([f"task-{number}" for number in range(9_000)])
    facts.brokers = Fact([f"broker-{number}" for number in range(8)])

    assert "9,000 topics" in found(facts, "topic-count")[0].what
    assert "4 bundles for 8 brokers" in found(facts, "bundles")[0].what
    whole = configured(facts, loadBalancerAutoBundleSplitEnabled="false")
    assert "not split by themselves" in found(whole, "bundles")[1].what


def test_a_lane_without_its_subscription() -> None:
    facts = sound()
    lacking = topic("task-a")
    del lacking.stats["subscriptions"]["pushlane"]
    facts.looked_at.append(lacking)

    assert [one.what for one in found(facts, "lane-subscription")] == [
        f"{LANES}/task-a lacks its subscription pushlane"
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"blockedSubscriptionOnUnackedMsgs": True, "unackedMessages": 50_000},
        {"consumers": [{"blockedConsumerOnUnackedMsgs": True}], "unackedMessages": 50_000},
    ],
)
def test_a_lane_that_the_broker_holds_back(changes: dict[str, Any]) -> None:
    facts = sound()
    facts.looked_at = [topic(**changes)]

    [finding] = found(facts, "blocked-lanes")

    assert "50,000 messages are unacked" in finding.what


def test_messages_that_a_ttl_has_dropped() -> None:
    facts = sound()
    facts.looked_at = [topic("task-abc", totalMsgExpired=3)]

    [finding] = found(facts, "expired-messages")

    assert "3 messages" in finding.what
    assert finding.mend == "pushlane clone abc"


def test_a_subscription_of_somebody_else_that_nobody_reads_by() -> None:
    facts = sound()
    one = topic()
    one.stats["subscriptions"] |= {
        "audit": {"consumers": [], "msgBacklog": 7, "backlogSize": 1024**2},
        "read": {"consumers": [{}], "msgBacklog": 7},
    }
    facts.looked_at = [one]

    [finding] = found(facts, "unused-subscriptions")

    assert "audit; it holds 1.0 MiB (messages: 7)" in finding.what
    assert finding.can_fix
    assert finding.destroys


def test_storage_behind_an_old_unacked_message() -> None:
    facts = sound()
    an_hour_ago_ms = int(time.time() * 1000) - 3_600_000
    old = topic(
        backlogSize=2 * PINNED_BYTES, msgBacklog=1, earliestMsgPublishTimeInBacklog=an_hour_ago_ms
    )
    old.internals.update(numberOfEntries=100_000, totalSize=2 * PINNED_BYTES)
    facts.looked_at = [old]

    [finding] = found(facts, "pinned-storage")

    assert "512 MiB (1,536 in all copies)" in finding.what
    assert "an old unacked message of pushlane, 60 minutes old" in finding.what


def test_a_large_backlog_pins_nothing() -> None:
    facts = sound()
    large = topic(backlogSize=2 * PINNED_BYTES, msgBacklog=100_000)
    large.internals.update(numberOfEntries=100_000, totalSize=2 * PINNED_BYTES)
    facts.looked_at = [large]

    assert found(facts, "pinned-storage") == []


@pytest.mark.parametrize(("receipts", "severity"), [("on", "warning"), ("required", "error")])
def test_a_log_of_receipts_that_nobody_reads(receipts: str, severity: str) -> None:
    facts = sound(_ON_PULSAR.but(receipts=receipts, receipts_max_bytes=4 * 1024**3))
    one = topic("receipts-partition-0", RECEIPTS)
    one.stats["subscriptions"] = {"pipeline": {"backlogSize": 1024**3, "msgBacklog": 9}}
    facts.looked_at = [one]

    [finding] = found(facts, "receipts-log")

    assert finding.severity == severity
    assert "is 100% full" in finding.what


def test_topics_that_could_not_be_listed_are_not_told_to_be_well() -> None:
    facts = sound()
    facts.topics[LANES] = Fact(why_not="refused")

    assert skipped(facts, "unused-subscriptions") == "refused"


def test_sizes_of_topics_are_read_from_the_metrics() -> None:
    metrics = (
        b"# TYPE pulsar_storage_size gauge\n"
        b'pulsar_storage_size{cluster="c",topic="persistent://pushlane/lanes/pool-1"} 143\n'
        b'pulsar_storage_logical_size{topic="persistent://pushlane/lanes/pool-1"} 9\n'
        b'pulsar_storage_size{topic="persistent://pushlane/lanes/pool-2"} no\n'
    )

    assert sizes_in(metrics) == {"pushlane/lanes/pool-1": 143.0}


def test_of_the_brokers_configuration_only_what_is_no_secret_is_told() -> None:
    told = _open(
        {"clusterName": "eu", "maxTopics": "-1", "on": "true", "tlsKeyStorePassword": "abc"}
        | {"brokerClientAuthenticationParameters": "token:abc"}
    )

    assert told == {"clusterName": "eu", "maxTopics": "-1", "on": "true"}


def test_what_is_no_secret_of_a_namespace_is_dumped_alone() -> None:
    keys = {"s3ManagedLedgerOffloadCredentialSecret": "canary"}

    shown = _plain({"message_ttl_in_seconds": 0, "offload_policies": keys})

    assert shown == {"message_ttl_in_seconds": 0}


def test_who_is_refused_is_led_to_the_settings_of_credentials_and_not_to_the_url() -> None:
    facts = sound()
    facts.client = Fact(why_not="could not look up a topic (AuthenticationError, code 8)")

    [finding] = found(facts, "broker")

    assert "docs/security.md" in finding.mend
