"""Looks at a broker and its Redis for `doctor`, and mends what is ours to mend."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

from pushlane.backends.operations import Bounds, Inspection
from pushlane.backends.pulsar import checks, topic_checks
from pushlane.backends.pulsar.admin import connect_admin, topic_path
from pushlane.backends.pulsar.checks import AGE_QUOTA, EXPIRY, POLICY
from pushlane.backends.pulsar.facts import PulsarFacts, Web, collect
from pushlane.backends.pulsar.policies import namespaces_of, require_namespace, set_policy
from pushlane.backends.pulsar.topic_checks import UNUSED
from pushlane.backends.redis import checks as redis_checks
from pushlane.backends.redis.checks import RedisFacts
from pushlane.backends.redis.checks import collect as collect_redis
from pushlane.settings import Settings
from pushlane.util.checks import Check, Finding, combined, examined

_OF_BROKER: tuple[Check[PulsarFacts], ...] = (
    *checks.BROKER_CHECKS,
    *checks.NAMESPACE_CHECKS,
    *topic_checks.CAPACITY_CHECKS,
    *topic_checks.TOPIC_CHECKS,
)
CHECKS: tuple[Check[Any], ...] = (*_OF_BROKER, *redis_checks.CHECKS)

_TEXTS = frozenset(
    {"clusterName", "backlogQuotaDefaultRetentionPolicy", "loadManagerClassName"}
    | {"brokerDeleteInactiveTopicsMode", "subscriptionTypesEnabled", "managedLedgerOffloadDriver"}
)
"""Texts of the broker's configuration that are no secret; of others only numbers and flags are."""
_OWN_TEXTS = frozenset(
    {"properties", "subscriptionProperties", "metadata", "auth_policies", "offload_policies"}
)
"""Maps that hold what somebody wrote there, as its secret in the log of receipts, roles, and the
keys of a store that ledgers are moved to.
"""


async def inspect(settings: Settings, bounds: Bounds) -> Inspection:
    """Look at the broker and at Redis, side by side. Raises BadInput for a setting of no use."""
    require_namespace(settings.namespace)
    async with connect_admin(settings) as admin:
        facts, (redis, live) = await asyncio.gather(
            collect(settings, admin, bounds.most_topics, bounds.bookie),
            collect_redis(settings, bounds.look_again_s),
        )
    examination = combined([examined(_OF_BROKER, facts), examined(redis_checks.CHECKS, redis)])
    return Inspection(examination, live, _said(facts, redis))


async def mend(settings: Settings, finding: Finding) -> str:
    """See `backends.operations.Examiner`."""
    kind, namespace, *rest = finding.target
    async with connect_admin(settings) as admin:
        if kind == UNUSED:
            topic, name = rest
            subscription = f"{topic_path(namespace, topic)}/subscription/{quote(name, safe='')}"
            doing = f"remove the subscription {name}"
            await admin.insist("DELETE", subscription, doing, allow=(404,))
            return f"{namespace}/{topic}: the subscription {name} is removed"
        path = f"/namespaces/{namespace}"
        doing = f"fix {finding.check} of {namespace}"
        if kind == POLICY:
            [policy] = [one for one in namespaces_of(settings)[namespace] if one.key == rest[0]]
            await set_policy(admin, namespace, policy)
            return f"{namespace}: {policy.path} is set to {policy.value}"
        if kind == AGE_QUOTA:
            aged = f"{path}/backlogQuota?backlogQuotaType=message_age"
            await admin.insist("DELETE", aged, doing)
            return f"{namespace}: the quota by age is removed"
        assert kind == EXPIRY
        await admin.insist("POST", f"{path}/subscriptionExpirationTime", doing, 0)
        return f"{namespace}: subscriptions do not expire"


def _said(facts: PulsarFacts, redis: RedisFacts) -> dict[str, Any]:
    return {
        "broker": {
            "version": facts.web.get_or(Web("", 0.0)).version,
            "brokers": facts.brokers.get_or([]),
            "bookies": facts.bookies.get_or([]),
            "configuration": _open(facts.configuration.get_or({})),
        },
        "namespaces": {
            name: {
                "policies": _plain(policies.get_or(None)),
                "topics": len(facts.topics[name].get_or([])),
            }
            for name, policies in facts.policies.items()
        },
        "topics": {
            one.name: {"stats": _plain(one.stats), "internal_stats": _plain(one.internals)}
            for one in facts.looked_at
        },
        "redis": _plain(redis.info.get_or({})),
    }


def _open(configuration: dict[str, str]) -> dict[str, str]:
    """Return what is no secret: numbers, flags, and texts of known names."""
    return {
        name: value
        for name, value in sorted(configuration.items())
        if name in _TEXTS or value in ("true", "false") or _is_number(value)
    }


def _is_number(text: str) -> bool:
    return text.removeprefix("-").replace(".", "", 1).isdigit()


def _plain(value: Any) -> Any:
    """Return the value without maps that hold what somebody wrote there."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items() if name not in _OWN_TEXTS}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
