"""A Pulsar cluster that loses a bookie or a broker under load, and topics that move meanwhile.

How soon it goes on is for `python -m bench faults --only cluster-broker-killed` to say.
"""

from __future__ import annotations

from collections import Counter

import pytest

from bench.cluster import PulsarCluster
from tests.processes import NOT_COUNTED_S, Pushlane, Received, Running, each_once, until

pytestmark = [
    pytest.mark.pulsar,
    pytest.mark.timeout(900),
    pytest.mark.answers_after(20),
    pytest.mark.xdist_group("cluster"),
]

SLOTS = 20
PUSHES = 600
LEVELS = ("high", "medium", "low", "high", "medium", "high")
FLOWING = 200


class Flow:
    """A backlog on lanes of all levels, and dispatchers at work on it."""

    def __init__(self, pushlane: Pushlane, receiver: Received, dispatchers: int) -> None:
        self.pushlane = pushlane
        self.receiver = receiver
        self.totals = {pushlane.submit(level, PUSHES): PUSHES for level in LEVELS}
        words = ("--slots", str(SLOTS), "--sink", receiver.sink)
        self.running: list[Running] = [pushlane.dispatch(*words) for _ in range(dispatchers)]
        self.goes_on()

    def goes_on(self) -> None:
        """Wait until many more have arrived."""
        self.receiver.until(self.receiver.count() + FLOWING, *self.running)

    def ends(self) -> None:
        """Wait until every push has arrived and every task is done; dispatchers stop well."""
        self.receiver.until(sum(self.totals.values()), *self.running)
        until(lambda: set(self.receiver.pushes) == set(each_once(self.totals)))
        until(lambda: not self.pushlane.json("tasks"))
        assert [one.stop() for one in self.running] == [0] * len(self.running)


def test_a_bookie_killed_costs_nothing(
    cluster: PulsarCluster, on_cluster: Pushlane, receiver: Received
) -> None:
    flow = Flow(on_cluster, receiver, dispatchers=1)

    cluster.kill("bookie-0")
    late = on_cluster.submit("high", PUSHES)
    flow.totals[late] = PUSHES

    flow.ends()

    assert receiver.pushes == each_once(flow.totals)
    cluster.start_bookie(0)
    cluster.bookie_answers(0)


def test_topics_that_move_while_they_are_read_cost_nothing(
    cluster: PulsarCluster, on_cluster: Pushlane, receiver: Received
) -> None:
    flow = Flow(on_cluster, receiver, dispatchers=1)
    for _ in range(3):
        cluster.unload(on_cluster.settings["namespace"])
        flow.goes_on()

    flow.ends()

    assert receiver.pushes == each_once(flow.totals)


def test_of_a_broker_killed_all_is_delivered_by_the_other(
    cluster: PulsarCluster, on_cluster: Pushlane, receiver: Received
) -> None:
    """The last of this file, as it starts no new broker."""
    namespace = on_cluster.settings["namespace"]
    flow = Flow(on_cluster, receiver, dispatchers=1)
    owners = cluster.owners(namespace)
    [(killed, _)] = Counter(owners.values()).most_common(1)

    cluster.kill(f"broker-{killed}")
    cluster.taken_over(namespace, list(owners))
    flow.ends()

    assert receiver.duplicates <= SLOTS + receiver.busiest(NOT_COUNTED_S)
