"""The namespaces that pushlane needs, with their policies and pulsar-admin's commands for these.

Policies are read first and changed only where they differ, so that connecting is cheap, and so that
a token without the right to change policies does when they are as they should be.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pushlane.backends.pulsar.admin import Admin
from pushlane.core.errors import BadInput
from pushlane.settings import Settings
from pushlane.util.errors import MissingPermission

DELAY_TICK_MS = 100
_MIB = 1024 * 1024
JOURNAL_COMPACTION_BYTES = 16 * _MIB


class Policy(NamedTuple):
    """A value under `key` of a namespace's policies, and the path that sets it.

    Where a retention is `exact`, a longer one is set back to it.
    """

    key: str
    path: str
    value: Any
    method: str = "POST"
    exact: bool = False


# A topic is removed by pushlane alone, and never made by a client that reconnects to a dropped one.
_COMMON = (
    Policy("autoTopicCreationOverride", "autoTopicCreation", {"allowAutoTopicCreation": False}),
    Policy(
        "inactive_topic_policies",
        "inactiveTopicPolicies",
        {
            "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
            "maxInactiveDurationSeconds": 60,
            "deleteWhileInactive": False,
        },
    ),
    Policy("message_ttl_in_seconds", "messageTTL", 0),
)

_RETENTION = "retention_policies"

_DELAYED = {"active": True, "tickTime": DELAY_TICK_MS}
LANE_POLICIES = (
    *_COMMON,
    Policy("deduplicationEnabled", "deduplication", True),
    Policy("delayed_delivery_policies", "delayedDelivery", _DELAYED),
)


def lane_policies(settings: Settings) -> tuple[Policy, ...]:
    """Return the policies of the lanes: how long acked messages are kept, what a lane may hold.

    At the quota a publish fails and is tried again later: eviction, the other choice, loses pushes.
    """
    policies: tuple[Policy, ...] = LANE_POLICIES
    if minutes := math.ceil(settings.retention_s / 60):
        kept = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": -1}
        policies = (*policies, Policy(_RETENTION, "retention", kept))
    if settings.lane_quota_bytes == "keep":
        return policies
    quota = {
        "limitSize": settings.lane_quota_bytes,
        "limitTime": -1,
        "policy": "producer_exception",
    }
    return (*policies, Policy("backlog_quota_map", "backlogQuota", quota))


def receipt_policies(settings: Settings) -> tuple[Policy, ...]:
    """Return the policies of the log of receipts, which keeps committed ones for a while.

    The others are kept up to a bound of bytes. The broker refuses a backlog quota that is not less
    than the bytes it retains.
    """
    most_bytes = settings.receipts_max_bytes // settings.receipts_partitions
    minutes = math.ceil(settings.receipts_retention_s / 60)
    kept_mib = math.ceil(most_bytes / _MIB) + 1 if minutes else 0
    kept = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": kept_mib}
    required = settings.receipts == "required"
    at_bound = "producer_exception" if required else "consumer_backlog_eviction"
    quota = {"limitSize": most_bytes, "limitTime": -1, "policy": at_bound}
    quotas = Policy("backlog_quota_map", "backlogQuota", quota)
    return (*_COMMON, Policy(_RETENTION, "retention", kept), quotas)


# Compacted messages are trimmed, save the newest two thresholds' worth, whatever their age. Those
# would be left if the compacted copy were lost; and with no ledger beside that copy, the
# broker sends its entries one by one, so that a replay takes five times as long.
_KEPT = {"retentionTimeInMinutes": -1, "retentionSizeInMB": 2 * JOURNAL_COMPACTION_BYTES // _MIB}
JOURNAL_POLICIES = (
    *_COMMON,
    Policy(_RETENTION, "retention", _KEPT, exact=True),
    Policy("compaction_threshold", "compactionThreshold", JOURNAL_COMPACTION_BYTES, "PUT"),
)


def namespaces_of(settings: Settings) -> dict[str, tuple[Policy, ...]]:
    """Return the namespaces of a deployment: of its lanes, its journal and its receipts."""
    return {
        settings.namespace: lane_policies(settings),
        f"{settings.namespace}-registry": JOURNAL_POLICIES,
        f"{settings.namespace}-receipts": receipt_policies(settings),
    }


async def ensure_namespace(admin: Admin, namespace: str, policies: tuple[Policy, ...]) -> None:
    """Make tenant and namespace when they are missing, and set the policies that differ.

    Harmless when several processes do so at once: a broker that has not heard of a change yet is
    asked again. Who may not read policies leaves them to `pushlane bootstrap` and to those who may.

    Raises:
        BadInput: the namespace is not of the form tenant/name.
        Unreachable: the admin REST does not answer, or refuses.
    """
    require_namespace(namespace)
    path = f"/namespaces/{namespace}"
    try:
        current = await admin.find_any(path, f"read namespace {namespace}", dict[str, Any])
    except MissingPermission:
        return
    if current is None:
        tenant = namespace.split("/", 1)[0]
        doing = f"make tenant {tenant}"
        if await admin.find_any(f"/tenants/{tenant}", doing, dict[str, Any]) is None:
            await make_tenant(admin, tenant, [])
        await make_namespace(admin, namespace)
        current = {}
    for policy in unmet(current, policies):
        await set_policy(admin, namespace, policy)


def require_namespace(namespace: str) -> None:
    """Raise BadInput for a namespace that is not of the form tenant/name."""
    if not re.fullmatch(r"[\w=:.-]+/[\w=:.-]+", namespace, re.ASCII):
        raise BadInput(
            f"namespace {namespace!r} is not of the form tenant/name; try pushlane/lanes"
        )


def unmet(current: Mapping[str, Any], policies: Iterable[Policy]) -> list[Policy]:
    """Return the policies that a namespace does not have now."""
    return [policy for policy in policies if not _holds(current.get(policy.key), policy)]


async def set_policy(admin: Admin, namespace: str, policy: Policy) -> None:
    """Give a namespace this policy."""
    path = f"/namespaces/{namespace}/{policy.path}"
    doing = f"set {policy.path} of namespace {namespace}"
    await admin.insist(policy.method, path, doing, policy.value)


async def make_tenant(admin: Admin, tenant: str, roles: Sequence[str]) -> None:
    """Make a tenant with these roles as its admins. One that is there stays as it is."""
    doing = f"make tenant {tenant}"
    clusters = await admin.read("/clusters", doing, list[str])
    body = {"adminRoles": list(roles), "allowedClusters": clusters}
    await admin.insist("PUT", f"/tenants/{tenant}", doing, body, allow=(409,))


async def make_namespace(admin: Admin, namespace: str) -> None:
    """Make a namespace. One that is there stays as it is."""
    doing = f"make namespace {namespace}"
    await admin.insist("PUT", f"/namespaces/{namespace}", doing, allow=(409,))


def _holds(current: Any, policy: Policy) -> bool:
    if policy.key == "backlog_quota_map" and isinstance(current, dict):
        current = current.get("destination_storage")
    if policy.key == _RETENTION and not policy.exact and isinstance(current, dict):
        return _keeps(current, policy.value)
    if isinstance(policy.value, dict):
        return isinstance(current, dict) and policy.value.items() <= current.items()
    return bool(current == policy.value)


def _keeps(current: dict[str, Any], wanted: dict[str, int]) -> bool:
    """Return whether a retention is as long as needed: none is shortened that others may need."""
    return all(
        current.get(name, 0) == -1 or (least != -1 and current.get(name, 0) >= least)
        for name, least in wanted.items()
    )


def command_of(policy: Policy, namespace: str) -> str:
    """Return the command that sets this policy of a namespace."""
    return f"pulsar-admin namespaces {_COMMANDS[policy.path](namespace, policy.value)}"


def _inactive(namespace: str, value: Any) -> str:
    return (
        f"set-inactive-topic-policies {namespace} --disable-delete-while-inactive "
        f"--max-inactive-duration {value['maxInactiveDurationSeconds']}s "
        f"--delete-mode {value['inactiveTopicDeleteMode']}"
    )


def _retention(namespace: str, value: Any) -> str:
    minutes, megabytes = value["retentionTimeInMinutes"], value["retentionSizeInMB"]
    time = f"{minutes}m" if minutes > 0 else str(minutes)
    size = f"{megabytes}M" if megabytes > 0 else str(megabytes)
    return f"set-retention {namespace} --time {time} --size {size}"


def _delays(namespace: str, value: Any) -> str:
    """Return the command with whole seconds: it takes no less."""
    seconds = math.ceil(value["tickTime"] / 1000)
    finer = f"# then `pushlane doctor --fix` for a tick of {value['tickTime']} ms"
    return f"set-delayed-delivery {namespace} --enable --time {seconds}s  {finer}"


_COMMANDS: dict[str, Callable[[str, Any], str]] = {
    "autoTopicCreation": lambda namespace, _: f"set-auto-topic-creation {namespace} --disable",
    "inactiveTopicPolicies": _inactive,
    "messageTTL": lambda namespace, value: f"set-message-ttl {namespace} --messageTTL {value}",
    "deduplication": lambda namespace, _: f"set-deduplication {namespace} --enable",
    "delayedDelivery": _delays,
    "backlogQuota": lambda namespace, value: (
        f"set-backlog-quota {namespace} --limit {value['limitSize']} --policy {value['policy']}"
    ),
    "retention": _retention,
    "compactionThreshold": lambda namespace, value: (
        f"set-compaction-threshold {namespace} --threshold {value}"
    ),
}
