"""Push services rest one by one: what fails at one keeps no push of another one waiting."""

import pytest

from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Kind, Outcome, Push, Scope
from pushlane.core.task import Level
from pushlane.dispatcher.sinks.push_services import KNOWN_HOSTS, PushServices

BUSY = Outcome.throttled("HTTP 503")
BROKEN = Outcome.retry("HTTP 500")
REFUSED = Outcome.refused("HTTP 403: check vapid_key")
NOT_FOUND = Outcome.dead("HTTP 400", scope=None)
GONE = Outcome.gone("HTTP 410")
A, B = "a.example.com", "b.example.com"


class Clock:
    now_s = 1_000.0

    def __call__(self):
        return self.now_s


class Services:
    """Push services, of which `ask` asks one as the sink does, and gets `outcome` from it."""

    def __init__(self, hosts=(A, B)):
        self.clock = Clock()
        self.services = PushServices(hosts, 10, self.clock)
        self.seq = self.asked = 0

    def ask(self, host, outcome, attempt=1):
        self.seq += 1
        service = self.services.of(host)
        if (refusal := self.services.refusal(service)) is not None:
            return refusal
        self.asked += 1
        delivery = Delivery(Push("task", self.seq, "r", attempt=attempt), Level.HIGH)
        leave = self.services.admit(service)
        return self.services.landed(service, leave, delivery, outcome)

    def fails(self, host, outcome, times=60):
        """What becomes of pushes to a host that answers so, while the other delivers."""
        ends = []
        for _ in range(times):
            self.clock.now_s += 0.1
            self.ask(B if host == A else A, DELIVERED)
            ends.append(self.ask(host, outcome))
        return ends


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("fcm.googleapis.com", True),
        ("updates.push.services.mozilla.com", True),
        ("web.push.apple.com", True),
        ("api.push.apple.com", True),
        ("wns2-par02p.notify.windows.com", True),
        ("fcm.googleapis.com.evil.example", False),
        ("evilnotify.windows.com", False),
        ("notify.windows.com", False),
        ("127.0.0.1", False),
        ("googleapis.com", False),
        ("", False),
    ],
)
def test_the_push_services_of_the_browsers_are_known_and_no_others(host, known):
    services = PushServices(KNOWN_HOSTS, 10, Clock())

    assert (services.of(host) is not None) is known


def test_hosts_of_one_entry_are_one_service():
    services = PushServices(["*.example.com"], 10, Clock())

    assert services.of("a.example.com") is services.of("b.example.com")


@pytest.mark.parametrize("host", [A, B])
def test_an_entry_may_be_in_capitals(host):
    assert PushServices(["A.Example.com", "*.EXAMPLE.com"], 10, Clock()).of(host) is not None


@pytest.mark.parametrize("outcome", [DELIVERED, BUSY, BROKEN, REFUSED, NOT_FOUND, GONE])
def test_of_one_service_alone_the_sink_hears_as_it_is(outcome):
    services = Services([A])

    assert [services.ask(A, outcome) for _ in range(60)] == [outcome] * 60


@pytest.mark.parametrize("outcome", [BUSY, REFUSED])
def test_what_is_about_one_service_of_several_is_not_about_the_sink(outcome):
    ends = Services().fails(A, outcome)

    assert {(one.kind, one.scope, one.refuses_us) for one in ends} == {
        (Kind.RETRY, Scope.HOST, False)
    }


def test_a_service_that_is_busy_is_left_alone_and_the_other_is_not():
    services = Services()
    services.fails(A, BUSY, 200)
    before = services.asked

    ends = [services.ask(A, BUSY) for _ in range(50)]

    assert services.asked <= before + 1
    assert ends[-1] == Outcome.throttled(f"{A} takes no pushes now", scope=Scope.HOST)
    assert services.ask(B, DELIVERED) is DELIVERED


def test_a_service_that_refuses_our_key_is_tried_once_a_minute():
    services = Services()
    services.fails(A, REFUSED, 10)
    before = services.asked

    for _ in range(20):
        services.clock.now_s += 6
        services.ask(A, REFUSED)

    assert 1 <= services.asked - before <= 2


def test_one_that_is_back_is_found_by_a_probe():
    services = Services()
    services.fails(A, BUSY, 200)

    services.clock.now_s += 5

    assert services.ask(A, DELIVERED) is DELIVERED
    services.clock.now_s += 1
    assert services.ask(A, DELIVERED) is DELIVERED


def test_pushes_that_fail_while_a_service_is_down_lose_no_attempt():
    services = Services()
    ends = services.fails(A, BROKEN, 60)

    assert ends[0] == BROKEN
    assert {one.scope for one in ends[-30:]} == {Scope.HOST}


def test_a_storm_of_final_answers_of_one_service_ends():
    services = Services()
    for _ in range(5):
        services.ask(A, DELIVERED)

    ends = services.fails(A, NOT_FOUND, 60)

    assert ends[0] == NOT_FOUND
    assert sum(one.kind is Kind.DEAD for one in ends) < 30
    assert ends[-1].scope is Scope.HOST


def test_when_all_in_use_rest_it_is_the_sink_that_does():
    services = Services()
    services.ask(B, DELIVERED)
    for _ in range(100):
        services.clock.now_s += 0.1
        services.ask(A, BUSY)
        services.ask(B, BUSY)

    assert services.ask(A, BUSY) == BUSY
    assert services.ask(B, BUSY) == BUSY


def test_a_dead_subscription_says_nothing_of_its_service():
    services = Services()

    assert services.fails(A, GONE, 100) == [GONE] * 100
    assert services.ask(A, DELIVERED) is DELIVERED


def test_a_service_that_begins_to_rest_is_named_once_in_the_log(caplog):
    services = Services()
    with caplog.at_level("INFO"):
        services.fails(A, BUSY, 200)
        services.clock.now_s += 5
        services.ask(A, DELIVERED)

    assert [record.action for record in caplog.records] == [
        "push_service_rests",
        "push_service_goes_on",
    ]
    assert caplog.records[0].message == (
        f"push service {A} rests: it takes no pushes now: HTTP 503"
    )


def test_a_push_that_did_not_go_is_given_back():
    services = Services([A, B]).services
    service, _ = services.of(A), services.of(B)  # alone it would always be asked

    for _ in range(1_000):
        services.give_back(service, services.admit(service))

    assert services.refusal(service) is None


def test_a_service_that_is_alone_in_use_rests_as_the_sink_and_is_not_named(caplog):
    services = Services()

    for _ in range(100):
        services.ask(A, BUSY)

    assert caplog.records == []


def test_a_host_that_rests_alone_in_use_is_the_sink():
    unresolved = Outcome.throttled("its host cannot be resolved now", scope=Scope.HOST)

    assert Services([A]).ask(A, unresolved).scope is Scope.SINK
