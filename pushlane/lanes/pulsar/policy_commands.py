"""The commands of pulsar-admin that set the policies of `backends.pulsar.policies`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pushlane.backends.pulsar.policies import Policy


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


def _quota(namespace: str, value: Any) -> str:
    return f"set-backlog-quota {namespace} --limit {value['limitSize']} --policy {value['policy']}"


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
    "backlogQuota": _quota,
    "retention": _retention,
    "compactionThreshold": lambda namespace, value: (
        f"set-compaction-threshold {namespace} --threshold {value}"
    ),
}
