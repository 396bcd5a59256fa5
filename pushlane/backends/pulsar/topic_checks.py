"""Checks of our topics: who pins what they store, and what stands still."""

from __future__ import annotations

import time
from collections.abc import Iterator
from shlex import quote

from pushlane.backends.pulsar import receipt_log
from pushlane.backends.pulsar.facts import PulsarFacts, TopicFacts
from pushlane.backends.pulsar.journal import COMPACTION
from pushlane.backends.pulsar.reader import SUBSCRIPTION
from pushlane.core.names import is_dead, task_of
from pushlane.lanes.pulsar.namespace_checks import pulsar_check
from pushlane.util.checks import Remark

PINNED_BYTES = 256 * 1024**2
"""What an old unacked message may hold, beyond what its backlog needs, before it is told."""

UNUSED = "subscription"
_OURS = frozenset({SUBSCRIPTION, receipt_log.SUBSCRIPTION, COMPACTION})
_FAR_MORE = 4
_SHOWN = 5
_MIB = 1024**2


def _unused(facts: PulsarFacts) -> Iterator[Remark]:
    for one in facts.measured():
        for name, subscription in one.subscriptions.items():
            if name in _OURS or subscription.get("consumers"):
                continue
            held = subscription.get("backlogSize", 0)
            yield Remark(
                "warning",
                f"{one.namespace}/{one.topic}: nobody reads by the subscription {name}; it holds "
                f"{held / _MIB:,.1f} MiB (messages: {subscription.get('msgBacklog', 0):,})",
                f"pulsar-admin topics unsubscribe -s {quote(name)} "
                f"persistent://{one.namespace}/{one.topic}",
                (UNUSED, one.namespace, one.topic, name),
                destroys=True,
            )


def _pinned(facts: PulsarFacts) -> Iterator[Remark]:
    pinned = [(*pinned_by(one), one) for one in facts.measured() if not is_dead(one.topic)]
    pinned.sort(key=lambda each: -each[0])
    copies = int(facts.number("managedLedgerDefaultWriteQuorum")) or 1
    for size, name, one in pinned[:_SHOWN]:
        if size < PINNED_BYTES:
            return
        task = task_of(one.topic)
        yield Remark(
            "warning",
            f"{one.namespace}/{one.topic}: {size / _MIB:,.0f} MiB ({size * copies / _MIB:,.0f} in "
            f"all copies) stay behind an old unacked message of {name}{_age(one)}",
            f"pushlane why {task}: resume, cancel or expire it if it is held; else restart the "
            "dispatcher that has it"
            if task
            else "restart the dispatchers that serve the lane (pushlane processes)",
        )


def pinned_by(one: TopicFacts) -> tuple[float, str]:
    """Return the bytes of acked messages behind the oldest unacked one, and whose that is."""
    entries = one.internals.get("numberOfEntries", 0)
    mean = one.internals.get("totalSize", 0) / entries if entries else 0.0
    held = [
        (subscription.get("backlogSize", 0), subscription.get("msgBacklog", 0) * mean, name)
        for name, subscription in one.subscriptions.items()
    ]
    return max(
        ((size - needed, name) for size, needed, name in held if size > _FAR_MORE * needed),
        default=(0.0, ""),
    )


def _age(one: TopicFacts) -> str:
    times = [sub.get("earliestMsgPublishTimeInBacklog", 0) for sub in one.subscriptions.values()]
    oldest_ms = min((at for at in times if at > 0), default=0)
    return f", {(time.time() * 1000 - oldest_ms) / 60_000:,.0f} minutes old" if oldest_ms else ""


def _blocked(facts: PulsarFacts) -> Iterator[Remark]:
    for one in facts.measured():
        for name, subscription in one.subscriptions.items():
            consumers = subscription.get("consumers", [])
            stuck = any(each.get("blockedConsumerOnUnackedMsgs") for each in consumers)
            if stuck or subscription.get("blockedSubscriptionOnUnackedMsgs"):
                yield Remark(
                    "error",
                    f"{one.namespace}/{one.topic}: the broker sends nothing by {name}, as "
                    f"{subscription.get('unackedMessages', 0):,} messages are unacked",
                    "restart the dispatcher that holds them (pushlane processes)",
                )


def _no_reader(facts: PulsarFacts) -> Iterator[Remark]:
    """Look for lanes without their subscription: what is published there is lost."""
    for one in facts.measured():
        if one.namespace == facts.settings.namespace and SUBSCRIPTION not in one.subscriptions:
            yield Remark(
                "error",
                f"{one.namespace}/{one.topic} lacks its subscription {SUBSCRIPTION}",
                f"pulsar-admin topics create-subscription -s {SUBSCRIPTION} -m earliest "
                f"persistent://{one.namespace}/{one.topic}",
            )


def _expired(facts: PulsarFacts) -> Iterator[Remark]:
    for one in facts.measured():
        count = one.subscriptions.get(SUBSCRIPTION, {}).get("totalMsgExpired", 0)
        if one.namespace == facts.settings.namespace and count:
            task = task_of(one.topic)
            yield Remark(
                "warning",
                f"{one.namespace}/{one.topic}: a TTL has dropped {count:,} messages",
                f"pushlane clone {task}" if task else "submit again what was on it",
            )


def _receipts_full(facts: PulsarFacts) -> Iterator[Remark]:
    settings = facts.settings
    namespace = f"{settings.namespace}-receipts"
    most = settings.receipts_max_bytes / settings.receipts_partitions
    sizes = [
        one.subscriptions.get(receipt_log.SUBSCRIPTION, {}).get("backlogSize", 0)
        for one in facts.measured()
        if one.namespace == namespace
    ]
    part = max(sizes, default=0) / most
    if part >= 0.8:
        what = f"the log of receipts is {part:.0%} full: nobody takes receipts over"
        severe = settings.receipts == "required"
        yield Remark("error" if severe else "warning", what, "pushlane pipeline run")


CHECKS = (
    pulsar_check(
        "lane-subscription",
        "that each lane has its subscription",
        "what is published on a lane without it is lost",
        _no_reader,
    ),
    pulsar_check(
        "blocked-lanes",
        "lanes that the broker holds back because of unacked messages",
        "such a lane stands still, and nobody is told",
        _blocked,
    ),
    pulsar_check(
        "unused-subscriptions",
        "subscriptions on our topics that are not ours and that nobody reads by",
        "they keep all that was published since, for ever",
        _unused,
    ),
    pulsar_check(
        "pinned-storage",
        f"what lies behind an old unacked message: under {PINNED_BYTES // _MIB} MiB a topic",
        "one unacked message keeps all ledgers behind it, with each of their copies",
        _pinned,
    ),
    pulsar_check(
        "expired-messages",
        "messages that a TTL has dropped since the broker has the topic",
        "their pushes are lost: their tasks never end by themselves",
        _expired,
    ),
    pulsar_check(
        "receipts-log",
        "how full the log of receipts is",
        "a full log drops its oldest receipts, or (receipts=required) holds all pushes",
        _receipts_full,
    ),
)
