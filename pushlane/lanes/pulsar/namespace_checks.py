"""Checks of the policies of our namespaces: those that pushlane sets, and those that others may."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pushlane.backends.pulsar.facts import PulsarFacts
from pushlane.backends.pulsar.policies import Policy, namespaces_of, unmet
from pushlane.lanes.pulsar.policy_commands import command_of
from pushlane.util.checks import Check, Remark, Severity

AREA = "pulsar"
FIX = "pushlane doctor --fix"
EVICTS = "consumer_backlog_eviction"
POLICY, AGE_QUOTA, EXPIRY = "policy", "age-quota", "expiry"
"""The kinds of targets that a fix knows."""


def present(facts: PulsarFacts) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return each of our namespaces that is there, with its policies."""
    for name, policies in facts.policies.items():
        found = policies.get()
        if found is not None:
            yield name, found


def _missing(facts: PulsarFacts, key: str) -> Iterator[tuple[str, Any, Policy]]:
    """Return the namespaces that lack a policy of ours, what they have instead, and the policy."""
    wanted = namespaces_of(facts.settings)
    for name, found in present(facts):
        for policy in unmet(found, wanted[name]):
            if policy.key == key:
                yield name, found.get(key), policy


def _ours(key: str, severity: Severity, what: str) -> Callable[[PulsarFacts], Iterator[Remark]]:
    """Make a check of a policy that pushlane sets at each start, and others may have changed."""

    def look(facts: PulsarFacts) -> Iterator[Remark]:
        for name, found, policy in _missing(facts, key):
            shown = f"{name}: {what}{_shown(found)}"
            yield Remark(severity, shown, command_of(policy, name), (POLICY, name, policy.key))

    return look


def _shown(found: Any) -> str:
    """Return what a namespace has instead, where that says more than that it is off."""
    return "" if found in (None, {}, False) else f" ({_flat(found)})"


def _flat(found: Any) -> str:
    if isinstance(found, dict):
        return ", ".join(f"{name} {value}" for name, value in found.items())
    return str(found)


def _delayed_delivery(facts: PulsarFacts) -> Iterator[Remark]:
    """A coarse tick delays by less than itself; pulsar-admin knows none under a second."""
    for name, found, policy in _missing(facts, "delayed_delivery_policies"):
        is_on = bool((found or {}).get("active"))
        what = "its tick is coarser than pushlane's" if is_on else "delayed delivery is off"
        yield Remark(
            "warning" if is_on else "error",
            f"{name}: {what}{_shown(found)}",
            FIX,
            (POLICY, name, policy.key),
        )


def _backlog_quota(facts: PulsarFacts) -> Iterator[Remark]:
    for name, found, policy in _missing(facts, "backlog_quota_map"):
        kind = (found or {}).get("destination_storage", {})
        evicts = kind.get("policy") == EVICTS
        yield Remark(
            "error" if evicts else "warning",
            f"{name}: the backlog quota is not as pushlane sets it{_shown(kind)}",
            command_of(policy, name),
            (POLICY, name, policy.key),
        )
    for name, found in present(facts):
        aged = found.get("backlog_quota_map", {}).get("message_age", {})
        if aged.get("policy") == EVICTS:
            yield Remark(
                "error",
                f"{name}: pushes that wait for longer than {aged.get('limitTime')} s are dropped",
                f"pulsar-admin namespaces remove-backlog-quota -t message_age {name}",
                (AGE_QUOTA, name),
            )


def _default_quota(facts: PulsarFacts) -> Iterator[Remark]:
    """Look at the namespaces without a quota of their own: the journal's has the broker's."""
    configuration = facts.configuration.get()
    if configuration.get("backlogQuotaDefaultRetentionPolicy") != EVICTS:
        return
    if all(facts.number(f"backlogQuotaDefaultLimit{of}") <= 0 for of in ("Bytes", "GB", "Second")):
        return
    for name, found in present(facts):
        if not found.get("backlog_quota_map", {}).get("destination_storage"):
            yield Remark(
                "error",
                f"{name}: the broker's default quota evicts what is not read yet",
                "pulsar-admin namespaces set-backlog-quota --limit 64G "
                f"--policy producer_exception {name}",
            )


def _subscription_expiry(facts: PulsarFacts) -> Iterator[Remark]:
    default = facts.configuration.get_or({}).get("subscriptionExpirationTimeMinutes", "0")
    for name, found in present(facts):
        own = found.get("subscription_expiration_time_minutes")
        minutes = int(default) if own is None else own
        if minutes > 0:
            yield Remark(
                "error",
                f"{name}: a lane that nobody reads for {minutes} minutes loses all its pushes",
                f"pulsar-admin namespaces set-subscription-expiration-time -t 0 {name}",
                (EXPIRY, name),
            )


def _max_delay(facts: PulsarFacts) -> Iterator[Remark]:
    """Look at the lanes' namespace: nothing in the others is delayed."""
    longest_ms = facts.settings.retry_longest_s * 1000
    for name, found in present(facts):
        if name != facts.settings.namespace:
            continue
        own = (found.get("delayed_delivery_policies") or {}).get("maxDeliveryDelayInMillis")
        most_ms = facts.number("delayedDeliveryMaxDelayInMillis") if own is None else own
        if 0 < most_ms < longest_ms:
            yield Remark(
                "error",
                f"{name}: delays are at most {most_ms / 1000:g} s, and retry_longest_s is "
                f"{longest_ms / 1000:g}",
                FIX,
                (POLICY, name, "delayed_delivery_policies") if own else (),
            )


_MADE_LATER = "none: pushlane makes it when it first needs it, which takes a tenant admin"


def _not_there(facts: PulsarFacts) -> Iterator[Remark]:
    for name, policies in facts.policies.items():
        if policies.get() is None:
            what = f"{name} is not there yet"
            yield Remark("note", what, _MADE_LATER)


def pulsar_check(
    name: str, looks_at: str, why: str, look: Callable[[PulsarFacts], Iterator[Remark]]
) -> Check[PulsarFacts]:
    """Make a check of this area."""
    return Check(name, AREA, looks_at, why, look)


CHECKS = (
    pulsar_check("namespaces", "that our namespaces are there", "lanes live in them", _not_there),
    pulsar_check(
        "message-ttl",
        "message TTL of our namespaces: off",
        "a push that waits for longer than the TTL is lost, and nobody is told",
        _ours(
            "message_ttl_in_seconds",
            "error",
            "pushes end after a TTL",
        ),
    ),
    pulsar_check(
        "backlog-quota",
        "backlog quota and its policy; an eviction by size or by age",
        "an eviction drops pushes that wait, and nobody is told; another quota holds up submits",
        _backlog_quota,
    ),
    pulsar_check(
        "default-quota",
        "the broker's default quota, where a namespace has none of its own",
        "an eviction would drop tasks from the journal",
        _default_quota,
    ),
    pulsar_check(
        "subscription-expiry",
        "expiry of subscriptions that nobody reads by: off",
        "a lane without its subscription has no pushes: they are lost, and nobody is told",
        _subscription_expiry,
    ),
    pulsar_check(
        "retention",
        "retention of our namespaces against retention_s and receipts_retention_s",
        "acked pushes cannot be replayed, and receipts read, for as long as the settings say",
        _ours(
            "retention_policies",
            "warning",
            "kept for less than the settings say",
        ),
    ),
    pulsar_check(
        "deduplication",
        "deduplication on the lanes' namespace",
        "a publish that is repeated after a crash, as of a fan-out, would be kept twice",
        _ours(
            "deduplicationEnabled",
            "error",
            "deduplication is off",
        ),
    ),
    pulsar_check(
        "delayed-delivery",
        "delayed delivery on the lanes' namespace, and its tick",
        "retries, delays and quiet hours go at once without it, and late with a coarse tick",
        _delayed_delivery,
    ),
    pulsar_check(
        "longest-delay",
        "the longest delay that the broker takes against retry_longest_s",
        "a retry over it cannot be published, and its lane stands still",
        _max_delay,
    ),
    pulsar_check(
        "auto-creation",
        "auto-creation of topics in our namespaces: off",
        "a client that reconnects makes a dropped lane again, without its subscription",
        _ours(
            "autoTopicCreationOverride",
            "warning",
            "topics make themselves",
        ),
    ),
    pulsar_check(
        "inactive-topics",
        "removal of inactive topics: those without a subscription alone",
        "lanes are removed by pushlane alone; another mode removes one that has pushes",
        _ours(
            "inactive_topic_policies",
            "error",
            "inactive topics are removed otherwise",
        ),
    ),
    pulsar_check(
        "compaction",
        "compaction of the journal",
        "the journal grows for ever, and a rebuild of Redis takes longer each day",
        _ours(
            "compaction_threshold",
            "warning",
            "the journal is compacted otherwise",
        ),
    ),
)
