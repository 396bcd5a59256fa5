"""Checks of what holds lanes back, and of how many copies there are: rates, limits, quorums."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pushlane.backends.pulsar.facts import PulsarFacts
from pushlane.lanes.pulsar.namespace_checks import present, pulsar_check
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
                yield Remark(
                    "warning",
                    f"{name}: {key} is {most:g}, and one process may hold {held} of a lane",
                    f"pulsar-admin namespaces set-max-unacked-messages-per-{who.lower()} "
                    f"-c 50000 {name}",
                )


def _copies(facts: PulsarFacts) -> Iterator[Remark]:
    bookies = facts.bookies.get_or([])
    for name, found in present(facts):
        own = found.get("persistence") or {}
        ensemble, write, ack = (
            int(own.get(key) or facts.number(default)) for key, default in _QUORUMS.items()
        )
        text = f"{name}: ensemble {ensemble}, write quorum {write}, ack quorum {ack}"
        mend = (
            "pulsar-admin namespaces set-persistence -e 3 -w 3 -a 2 -r 0 " + name
            if len(bookies) >= 3
            else "run three bookies or more, then pulsar-admin namespaces set-persistence "
            f"-e 3 -w 3 -a 2 -r 0 {name}"
        )
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


def _topic_count(facts: PulsarFacts) -> Iterator[Remark]:
    for name, topics in facts.topics.items():
        count = len(topics.get())
        if count > STRAIN_TOPICS * 0.8:
            yield Remark(
                "warning",
                f"{name} has {count:,} topics; metadata strains at about {STRAIN_TOPICS:,}",
                "lower retention_s and task_retention_s, or put more tasks on shared lanes",
            )
    for name, found in present(facts):
        most = found.get("max_topics_per_namespace") or facts.number("maxTopicsPerNamespace")
        count = len(facts.topics[name].get())
        if most and count > 0.8 * most:
            yield Remark(
                "error",
                f"{name} has {count:,} of at most {most:g} topics: soon no lane can be opened",
                f"pulsar-admin namespaces remove-max-topics-per-namespace {name}",
            )


def _bundles(facts: PulsarFacts) -> Iterator[Remark]:
    brokers = len(facts.brokers.get_or([]) or [])
    splits = facts.configuration.get().get("loadBalancerAutoBundleSplitEnabled") == "true"
    most = facts.number("loadBalancerNamespaceBundleMaxTopics") or 1_000
    for name, found in present(facts):
        bundles = int(found.get("bundles", {}).get("numBundles", 0))
        if name == facts.settings.namespace and bundles < brokers:
            yield Remark(
                "warning",
                f"{name} has {bundles} bundles for {brokers} brokers: some get no lane",
                f"pulsar-admin namespaces split-bundle --bundle-type LARGEST {name}",
            )
        if bundles and not splits and len(facts.topics[name].get()) > most * bundles:
            yield Remark(
                "warning",
                f"{name}: over {most:g} topics a bundle, and bundles are not split by themselves",
                "set loadBalancerAutoBundleSplitEnabled=true in broker.conf",
            )


CHECKS = (
    pulsar_check(
        "unacked-limit",
        "most unacked messages of a consumer and a subscription against prefetch and slots",
        "at the limit the broker stops sending and says nothing: lanes stand still",
        _unacked,
    ),
    pulsar_check(
        "throttling",
        "rates of dispatch and publish, of namespaces and of the broker",
        "the broker holds lanes back, which no share and no more slots can make up for",
        _rates,
    ),
    pulsar_check(
        "copies",
        "ensemble, write and ack quorum, and the number of bookies",
        "what was acknowledged with one copy is lost with that bookie's disk",
        _copies,
    ),
    pulsar_check(
        "topic-count",
        "topics a namespace against about 10,000, and against a limit of it",
        "lanes open slowly, and at a limit not at all",
        _topic_count,
    ),
    pulsar_check(
        "bundles",
        "bundles of namespaces against brokers and topics",
        "all lanes of a bundle are on one broker, and move together",
        _bundles,
    ),
)
