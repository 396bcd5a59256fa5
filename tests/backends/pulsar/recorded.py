"""What a Pulsar 4.0.8 answered about itself, to be changed in one field at a time."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from pushlane.backends.pulsar.examiner import CHECKS
from pushlane.backends.pulsar.facts import PulsarFacts, TopicFacts, Web
from pushlane.settings import Settings
from pushlane.util.checks import Fact, Finding, examined

_FOLDER = Path(__file__).parents[2] / "fixtures" / "pulsar-4.0.8"
LANES, JOURNAL, RECEIPTS = (f"pushlane/lanes{end}" for end in ("", "-registry", "-receipts"))


def answer(name: str) -> Any:
    """Return a recorded answer; each call gives another copy."""
    return json.loads((_FOLDER / f"{name}.json").read_text())


def sound(settings: Settings | None = None) -> PulsarFacts:
    """The facts of a broker with three bookies on which nothing is wrong."""
    configuration = answer("configuration") | {"metadataStoreUrl": "zk:zk1:2181/pulsar"}
    quorums = {"managedLedgerDefaultEnsembleSize": "3", "managedLedgerDefaultWriteQuorum": "3"}
    configuration |= quorums | {"managedLedgerDefaultAckQuorum": "2"}
    policies = answer("policies")
    web = Fact(Web("4.0.8", 0.1))
    return PulsarFacts(
        settings=settings or Settings(broker="pulsar://127.0.0.1:6650"),
        client=Fact(None),
        admin=web,
        web=web,
        configuration=Fact(configuration),
        bookies=Fact(["b1", "b2", "b3"]),
        brokers=Fact(["broker-1:8080"]),
        policies={
            LANES: Fact(policies["lanes"]),
            JOURNAL: Fact(policies["lanes-registry"]),
            RECEIPTS: Fact(None),
        },
        topics={LANES: Fact(["pool-1"]), JOURNAL: Fact(["tasks"]), RECEIPTS: Fact([])},
        looked_at=[topic()],
        bookie=Fact(answer("bookie") | {"journalSyncData": "true"}),
    )


def topic(name: str = "pool-1", namespace: str = LANES, **changes: Any) -> TopicFacts:
    """A lane whose subscription has these changes."""
    stats = answer("stats")
    stats["subscriptions"]["pushlane"] |= {"totalMsgExpired": 0} | changes
    return TopicFacts(namespace, name, stats, answer("internal-stats"))


def configured(facts: PulsarFacts, **changes: str) -> PulsarFacts:
    """The same facts with values of the broker's configuration changed."""
    facts.configuration = Fact(facts.configuration.get() | changes)
    return facts


def with_policies(facts: PulsarFacts, namespace: str, **changes: Any) -> PulsarFacts:
    """The same facts with policies of a namespace changed."""
    facts.policies[namespace] = Fact(copy.deepcopy(facts.policies[namespace].get()) | changes)
    return facts


def found(facts: PulsarFacts, check: str) -> list[Finding]:
    """What a check of this name finds."""
    return examined([one for one in CHECKS if one.name == check], facts).findings


def skipped(facts: PulsarFacts, check: str) -> str:
    """Why a check of this name is skipped, empty when it is not."""
    return examined([one for one in CHECKS if one.name == check], facts).skipped.get(check, "")
