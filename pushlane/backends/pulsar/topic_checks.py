"""Checks of our topics, and of what holds lanes back.

Of topics: who pins what they store, and what stands still. Of lanes: rates, limits and bundles, and
how many copies there are of what is on them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from shlex import quote
from typing import Any

from pushlane.backends.pulsar import receipt_log
from pushlane.backends.pulsar.checks import present, pulsar_check
from pushlane.backends.pulsar.facts import PulsarFacts, TopicFacts
from pushlane.backends.pulsar.journal import COMPACTION
from pushlane.backends.pulsar.reader import SUBSCRIPTION
from pushlane.core.names import is_dead, task_of
from pushlane.util.checks import Remark

STRAIN_TOPICS = 10_000

_RATES = {
    "topicDispatchRate": "remove-dispatch-rate",
    "subscriptionDispatchRate": "remove-subscription-dispatch-rate",
    "publishMaxMessageRate": "remove-publish-rate",
}
_BROKER_RATES = (
    *("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte"),
    *("dispatchThrottlingRatePerTopicInMsg", "dispatchThrottlingRatePerTopicInByte"),
    *("dispatchThrottlingRatePerSubscriptionInMsg", "dispatchThrottlingRatePerSubscriptionInByte"),
    *("brokerPublisherThrottlingMaxMessageRate", "brokerPublisherThrottlingMaxByteRate"),
    *("maxPublishRatePerTopicInMessages", "maxPublishRatePerTopicInBytes"),
)


@pulsar_check(
    "throttling",
    "rates of dispatch and publish, of namespaces and of the broker",
    "the broker holds lanes back, which no share and no more slots can make up for",
)
def _rates(facts: PulsarFacts) -> Iterator[Remark]:
    for name, found in present(facts):
        for key, command in _RATES.items():
            if _limits(found.get(key)):
                mend = f"pulsar-admin namespaces {command} {name}"
                yield Remark("warning", f"{name}: {key} limits what passes", mend)
    configuration = facts.configuration.get()
    for key in _BROKER_RATES:
        if facts.number(key) > 0:
            mend = f"pulsar-admin brokers update-dynamic-config --config {key} --value 0"
            yield Remark("warning", f"the broker's {key} is {configuration[key]}", mend)


def _limits(rates: Any) -> bool:
    """Tell whether one of a namespace's rates, by cluster, is a limit."""
    by_cluster = rates.values() if isinstance(rates, dict) else ()
    return any(
        isinstance(value, int) and value > 0 and name != "ratePeriodInSecond"
        for rate in by_cluster
        if isinstance(rate, dict)
        for name, value in rate.items()
    )


@pulsar_check(
    "unacked-limit",
    "most unacked messages of a consumer and a subscription against prefetch and slots",
    "at the limit the broker stops sending and says nothing: lanes stand still",
)
def _unacked(facts: PulsarFacts) -> Iterator[Remark]:
    held = facts.settings.prefetch + facts.settings.slots
    for name, found in present(facts):
        if name != facts.settings.namespace:
            continue
        for who in ("Consumer", "Subscription"):
            key = f"maxUnackedMessagesPer{who}"
            own = found.get(f"max_unacked_messages_per_{who.lower()}")
            most = facts.number(key) if own is None else own
            if 0 < most < 4 * held:
                what = f"{name}: {key} is {most:g}, and one process may hold {held} of a lane"
                setting = f"set-max-unacked-messages-per-{who.lower()} -c 50000"
                yield Remark("warning", what, f"pulsar-admin namespaces {setting} {name}")


@pulsar_check(
    "copies",
    "ensemble, write and ack quorum, and the number of bookies",
    "what was acknowledged with one copy is lost with that bookie's disk",
)
def _copies(facts: PulsarFacts) -> Iterator[Remark]:
    bookies = facts.bookies.get_or([])
    for name, found in present(facts):
        own = found.get("persistence") or {}
        ensemble, write, ack = (
            int(own.get(key) or facts.number(default)) for key, default in _QUORUMS.items()
        )
        text = f"{name}: ensemble {ensemble}, write quorum {write}, ack quorum {ack}"
        mend = f"pulsar-admin namespaces set-persistence -e 3 -w 3 -a 2 -r 0 {name}"
        if len(bookies) < 3:
            mend = f"run three bookies or more, then {mend}"
        if bookies and ensemble > len(bookies):
            yield Remark("error", f"{text}, and there are {len(bookies)} bookies", mend)
        elif ack < 2:
            yield Remark("warning", f"{text}: acknowledged with one copy", mend)
        elif bookies and ensemble == len(bookies) and write == ensemble == ack:
            yield Remark("warning", f"{text}: without one bookie nothing is written", mend)


_QUORUMS = {
    "bookkeeperEnsemble": "managedLedgerDefaultEnsembleSize",
    "bookkeeperWriteQuorum": "managedLedgerDefaultWriteQuorum",
    "bookkeeperAckQuorum": "managedLedgerDefaultAckQuorum",
}


@pulsar_check(
    "topic-count",
    "topics a namespace against about 10,000, and against a limit of it",
    "lanes open slowly, and at a limit not at all",
)
def _topic_count(facts: PulsarFacts) -> Iterator[Remark]:
    for name, topics in facts.topics.items():
        count = len(topics.get())
        if count > STRAIN_TOPICS * 0.8:
            what = f"{name} has {count:,} topics; metadata strains at about {STRAIN_TOPICS:,}"
            mend = "lower retention_s and task_retention_s, or put more tasks on shared lanes"
            yield Remark("warning", what, mend)
    for name, found in present(facts):
        most = found.get("max_topics_per_namespace") or facts.number("maxTopicsPerNamespace")
        count = len(facts.topics[name].get())
        if most and count > 0.8 * most:
            what = f"{name} has {count:,} of at most {most:g} topics: soon no lane can be opened"
            mend = f"pulsar-admin namespaces remove-max-topics-per-namespace {name}"
            yield Remark("error", what, mend)


@pulsar_check(
    "bundles",
    "bundles of namespaces against brokers and topics",
    "all lanes of a bundle are on one broker, and move together",
)
def _bundles(facts: PulsarFacts) -> Iterator[Remark]:
    brokers = len(facts.brokers.get_or([]) or [])
    splits = facts.configuration.get().get("loadBalancerAutoBundleSplitEnabled") == "true"
    most = facts.number("loadBalancerNamespaceBundleMaxTopics") or 1_000
    for name, found in present(facts):
        bundles = int(found.get("bundles", {}).get("numBundles", 0))
        if name == facts.settings.namespace and bundles < brokers:
            what = f"{name} has {bundles} bundles for {brokers} brokers: some get no lane"
            mend = f"pulsar-admin namespaces split-bundle --bundle-type LARGEST {name}"
            yield Remark("warning", what, mend)
        if bundles and not splits and len(facts.topics[name].get()) > most * bundles:
            what = f"{name}: over {most:g} topics a bundle, and bundles are not split by themselves"
            mend = "set loadBalancerAutoBundleSplitEnabled=true in broker.conf"
            yield Remark("warning", what, mend)


CAPACITY_CHECKS = (_unacked, _rates, _copies, _topic_count, _bundles)

PINNED_BYTES = 256 * 1024**2
"""What an old unacked message may hold, beyond what its backlog needs, before it is told."""

UNUSED = "subscription"
_OURS = frozenset({SUBSCRIPTION, receipt_log.SUBSCRIPTION, COMPACTION})
_FAR_MORE = 4
_SHOWN = 5
_MIB = 1024**2


@pulsar_check(
    "unused-subscriptions",
    "subscriptions on our topics that are not ours and that nobody reads by",
    "they keep all that was published since, for ever",
)
def _unused(facts: PulsarFacts) -> Iterator[Remark]:
    for one in facts.measured():
        for name, subscription in one.subscriptions.items():
            if name in _OURS or subscription.get("consumers"):
                continue
            held = subscription.get("backlogSize", 0)
            yield Remark(
                "warning",
                f"{one.name}: nobody reads by the subscription {name}; it holds "
                f"{held / _MIB:,.1f} MiB (messages: {subscription.get('msgBacklog', 0):,})",
                f"pulsar-admin topics unsubscribe -s {quote(name)} persistent://{one.name}",
                (UNUSED, one.namespace, one.topic, name),
                destroys=True,
            )


@pulsar_check(
    "pinned-storage",
    f"what lies behind an old unacked message: under {PINNED_BYTES // _MIB} MiB a topic",
    "one unacked message keeps everything stored after it, with each copy",
)
def _pinned(facts: PulsarFacts) -> Iterator[Remark]:
    pinned = [(*pinned_by(one), one) for one in facts.measured() if not is_dead(one.topic)]
    pinned.sort(key=lambda each: -each[0])
    copies = int(facts.number("managedLedgerDefaultWriteQuorum")) or 1
    for size, name, one in pinned[:_SHOWN]:
        if size < PINNED_BYTES:
            return
        what = (
            f"{one.name}: {size / _MIB:,.0f} MiB ({size * copies / _MIB:,.0f} in all copies) stay "
            f"behind an old unacked message of {name}{_age(one)}"
        )
        mend = "restart the dispatchers that serve the lane (pushlane processes)"
        if task := task_of(one.topic):
            held = "resume, cancel or expire it if it is held"
            mend = f"pushlane why {task}: {held}; else restart the dispatcher that has it"
        yield Remark("warning", what, mend)


def pinned_by(one: TopicFacts) -> tuple[float, str]:
    """Return the bytes of acked messages behind the oldest unacked one, and whose that is."""
    entries = one.internals.get("numberOfEntries", 0)
    mean = one.internals.get("totalSize", 0) / entries if entries else 0.0
    held = [
        (subscription.get("backlogSize", 0), subscription.get("msgBacklog", 0) * mean, name)
        for name, subscription in one.subscriptions.items()
    ]
    pinned = ((size - needed, name) for size, needed, name in held if size > _FAR_MORE * needed)
    return max(pinned, default=(0.0, ""))


def _age(one: TopicFacts) -> str:
    times = [sub.get("earliestMsgPublishTimeInBacklog", 0) for sub in one.subscriptions.values()]
    oldest_ms = min((at for at in times if at > 0), default=0)
    return f", {(time.time() * 1000 - oldest_ms) / 60_000:,.0f} minutes old" if oldest_ms else ""


@pulsar_check(
    "blocked-lanes",
    "lanes that the broker holds back because of unacked messages",
    "such a lane stops without notice",
)
def _blocked(facts: PulsarFacts) -> Iterator[Remark]:
    for one in facts.measured():
        for name, subscription in one.subscriptions.items():
            consumers = subscription.get("consumers", [])
            stuck = any(each.get("blockedConsumerOnUnackedMsgs") for each in consumers)
            if stuck or subscription.get("blockedSubscriptionOnUnackedMsgs"):
                held = f"{subscription.get('unackedMessages', 0):,} messages are unacked"
                what = f"{one.name}: the broker sends nothing by {name}, as {held}"
                mend = "restart the dispatcher that holds them (pushlane processes)"
                yield Remark("error", what, mend)


@pulsar_check(
    "lane-subscription",
    "that each lane has its subscription",
    "what is published on a lane without it is lost",
)
def _no_reader(facts: PulsarFacts) -> Iterator[Remark]:
    """Look for lanes without their subscription: what is published there is lost."""
    for one in facts.measured():
        if one.namespace == facts.settings.namespace and SUBSCRIPTION not in one.subscriptions:
            make = f"pulsar-admin topics create-subscription -s {SUBSCRIPTION} -m earliest"
            what = f"{one.name} lacks its subscription {SUBSCRIPTION}"
            yield Remark("error", what, f"{make} persistent://{one.name}")


@pulsar_check(
    "expired-messages",
    "messages that a TTL has dropped since the broker has the topic",
    "their pushes are lost: their tasks never end by themselves",
)
def _expired(facts: PulsarFacts) -> Iterator[Remark]:
    for one in facts.measured():
        count = one.subscriptions.get(SUBSCRIPTION, {}).get("totalMsgExpired", 0)
        if one.namespace == facts.settings.namespace and count:
            task = task_of(one.topic)
            what = f"{one.name}: a TTL has dropped {count:,} messages"
            mend = f"pushlane clone {task}" if task else "submit again what was on it"
            yield Remark("warning", what, mend)


@pulsar_check(
    "receipts-log",
    "how full the log of receipts is",
    "a full log drops its oldest receipts, or (receipts=required) holds all pushes",
)
def _receipts_full(facts: PulsarFacts) -> Iterator[Remark]:
    settings = facts.settings
    namespace = f"{settings.namespace}-receipts"
    most = settings.receipts_max_bytes / settings.receipts_partitions
    topics = [one for one in facts.measured() if one.namespace == namespace]
    ours = [one.subscriptions.get(receipt_log.SUBSCRIPTION, {}) for one in topics]
    sizes = [subscription.get("backlogSize", 0) for subscription in ours]
    part = max(sizes, default=0) / most
    if part >= 0.8:
        what = f"the log of receipts is {part:.0%} full: nobody takes receipts over"
        severe = settings.receipts == "required"
        yield Remark("error" if severe else "warning", what, "pushlane pipeline run")


TOPIC_CHECKS = (_no_reader, _blocked, _unused, _pinned, _expired, _receipts_full)
