"""A host that fails rests by itself, and is tried by one push at a time."""

import pytest

from pushlane.core.push import DELIVERED, Arrival, Outcome, Scope
from pushlane.dispatcher.sinks.address_posting import HostRests

AWAY = Outcome.throttled("no connection", scope=Scope.HOST)
SILENT = Outcome.dead("timed out", arrival=Arrival.UNKNOWN, scope=Scope.HOST)


class Hosts:
    """Rests with a clock that a test sets."""

    def __init__(self):
        self.at_s = 0.0
        self.rests = HostRests(lambda: self.at_s)

    def push(self, outcome, host="a"):
        """Let a push go and land; the wait it is told if it may not go."""
        wait_s = self.rests.wait_s(host)
        if wait_s is None:
            self.rests.landed(host, outcome)
        return wait_s


@pytest.mark.parametrize("failure", [AWAY, SILENT])
def test_it_rests_after_three_failures_in_a_row_and_no_other_host_does(failure):
    hosts = Hosts()
    assert [hosts.push(failure) for _ in range(4)] == [None, None, None, 1.0]
    assert hosts.push(DELIVERED, "b") is None


@pytest.mark.parametrize(
    "answer", [DELIVERED, Outcome.dead("HTTP 404", scope=Scope.HOST), Outcome.gone("HTTP 410")]
)
def test_any_answer_ends_the_row(answer):
    hosts = Hosts()
    for outcome in (AWAY, AWAY, answer, AWAY, AWAY):
        assert hosts.push(outcome) is None
    assert hosts.push(DELIVERED) is None


def test_each_rest_is_twice_as_long_up_to_a_minute():
    hosts, waits = Hosts(), []
    for _ in range(2):
        hosts.push(AWAY)
    for _ in range(8):
        assert hosts.push(AWAY) is None
        waits.append(hosts.rests.wait_s("a"))
        hosts.at_s += waits[-1]
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


def test_what_went_before_the_rest_does_not_make_it_longer():
    hosts = Hosts()
    for _ in range(50):
        hosts.rests.wait_s("a")
    for _ in range(50):
        hosts.rests.landed("a", AWAY)
    assert hosts.rests.wait_s("a") == 1.0


def test_after_a_rest_one_push_tries_it():
    hosts = Hosts()
    for _ in range(3):
        hosts.push(AWAY)
    hosts.at_s = 1.0
    assert [hosts.rests.wait_s("a") for _ in range(3)] == [None, 1.0, 1.0]
    hosts.rests.landed("a", DELIVERED)
    assert [hosts.rests.wait_s("a") for _ in range(3)] == [None, None, None]


def test_a_try_that_is_cancelled_leaves_its_place():
    hosts = Hosts()
    for _ in range(3):
        hosts.push(AWAY)
    hosts.at_s = 1.0
    assert hosts.rests.wait_s("a") is None
    hosts.rests.landed("a", None)
    assert hosts.rests.wait_s("a") is None


@pytest.mark.parametrize(("asked_s", "rest_s"), [(7.0, 7.0), (0.2, 1.0), (3600.0, 60.0)])
def test_a_wait_that_it_asks_for_holds_at_once(asked_s, rest_s):
    hosts = Hosts()
    assert hosts.push(Outcome.throttled("HTTP 503", asked_s, Scope.HOST)) is None
    assert hosts.rests.wait_s("a") == rest_s


def test_a_bounded_number_of_failing_hosts_is_known():
    hosts = Hosts()
    for number in range(10_001):
        for _ in range(3):
            hosts.push(AWAY, number)
    assert hosts.rests.wait_s(0) is None
    assert hosts.rests.wait_s(10_000) == 1.0
