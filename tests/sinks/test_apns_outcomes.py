"""What the sink of APNs makes of an answer: of tokens, ours and those of devices, and of codes."""

import asyncio
from email.utils import formatdate

import pytest

from pushlane.core.push import DELIVERED, Arrival, Kind, Outcome, Scope
from pushlane.dispatcher.sinks.apns import ApnsAnswer, outcome_of, read_body
from tests.emulators.apns import Apns, refused
from tests.sinks.apns_support import DEVICE, NOW_S, delivery, push, send, sink_to


async def test_a_dead_address_is_dead_since_apple_says_so():
    apns = Apns(now=lambda: NOW_S)
    apns.dead[DEVICE.lower()] = 1_763_999_999_000

    assert await send(apns, delivery()) == [Outcome.gone("Unregistered", 1_763_999_999_000)]


async def test_processes_that_share_nothing_but_the_key_are_one_to_apple():
    apns = Apns(now=lambda: NOW_S)

    async with apns.server.running():
        for _ in range(3):
            sink = sink_to(apns)
            assert await sink.deliver([delivery()]) == [DELIVERED]
            await sink.close()

    assert len(apns.tokens) == 1


async def test_a_token_that_another_program_signed_before_us_rests_the_sink():
    apns = Apns(now=lambda: NOW_S)
    apns.tokens["of another program"] = NOW_S - 60

    [outcome] = await send(apns, delivery())

    assert outcome == Outcome.throttled(
        "TooManyProviderTokenUpdates: does another program sign for this team, or is our clock off?"
    )


async def test_while_our_clock_is_late_an_expired_token_is_renewed_once_for_all():
    apns = Apns(now=lambda: NOW_S)

    async with apns.server.running():
        sink = sink_to(apns, slots=5)
        assert await sink.deliver([delivery()]) == [DELIVERED]
        apns.now = lambda: NOW_S + 35 * 60
        outcomes = await asyncio.gather(*(sink.deliver([delivery(push(n))]) for n in range(1, 6)))
        await sink.close()

    assert outcomes == [[DELIVERED]] * 5
    assert len(apns.tokens) == 2


@pytest.mark.parametrize(
    ("ahead_s", "hint"),
    [
        (-72 * 60, "our clock is 72 min behind the provider's"),
        (45, "check key, key_id, team_id and our clock"),
        (7 * 60, "our clock is 7 min ahead of the provider's"),
    ],
)
async def test_a_clock_that_is_off_is_named_where_the_answer_tells_the_time(ahead_s, hint):
    apns = Apns(now=lambda: NOW_S)
    answer = refused(403, "InvalidProviderToken")
    answer.headers["date"] = formatdate(NOW_S - ahead_s, usegmt=True)
    apns.says = lambda request: answer

    assert await send(apns, delivery()) == [Outcome.refused(f"InvalidProviderToken: {hint}")]


@pytest.mark.parametrize(
    "wrong", [{"key_id": "XYZ123DEFG"}, {"team_id": "XYZ123GHIJ"}, {"key": "another"}]
)
async def test_a_wrong_key_or_id_holds_the_sink_and_says_what_to_check(wrong):
    if "key" in wrong:
        wrong = {"key": Apns().pem()}

    [outcome] = await send(Apns(now=lambda: NOW_S), delivery(), **wrong)

    assert outcome.refuses_us
    assert outcome.reason == "InvalidProviderToken: check key, key_id, team_id and our clock"


async def test_a_wrong_topic_holds_the_sink():
    [outcome] = await send(Apns(now=lambda: NOW_S), delivery(), topic="com.example.other")

    assert outcome.refuses_us
    assert outcome.reason == (
        "TopicDisallowed: check the topic, and which apps the key may send to"
    )


async def test_addresses_of_another_environment_hold_the_sink_and_none_is_dead():
    apns = Apns(now=lambda: NOW_S)
    devices = [f"{number:064x}" for number in range(12)]
    apns.bad = dict.fromkeys(devices, "BadDeviceToken")

    outcomes = await send(apns, *(delivery(address=each) for each in devices))

    assert outcomes[:9] == [Outcome.retry("BadDeviceToken", arrival=Arrival.REFUSED)] * 9
    reason = (
        "BadDeviceToken for 10 addresses in a row: check the topic, and whether they belong to the "
        "environment production"
    )
    assert outcomes[9:] == [Outcome.refused(reason)] * 3


async def test_one_bad_address_alone_comes_to_an_end_by_its_attempts():
    apns = Apns(now=lambda: NOW_S)
    apns.bad = {DEVICE.lower(): "BadDeviceToken"}

    outcomes = await send(apns, *[delivery()] * 30)

    assert outcomes == [Outcome.retry("BadDeviceToken", arrival=Arrival.REFUSED)] * 30


async def test_a_delivery_shows_that_environment_and_topic_are_right():
    apns = Apns(now=lambda: NOW_S)
    devices = [f"{number:064x}" for number in range(209)]
    apns.bad = dict.fromkeys(devices, "DeviceTokenNotForTopic")
    bad = [delivery(address=each) for each in devices]

    outcomes = await send(apns, *bad[:10], delivery(), *bad[10:109], delivery(), *bad[109:])

    assert outcomes[9].refuses_us
    assert outcomes[10] == DELIVERED
    assert outcomes[11:110] == [Outcome.gone("DeviceTokenNotForTopic")] * 99
    assert outcomes[110] == DELIVERED
    assert outcomes[111:-1] == [Outcome.gone("DeviceTokenNotForTopic")] * 99
    assert outcomes[-1].refuses_us


@pytest.mark.parametrize(
    ("body", "read"),
    [
        (b'{"reason":"Unregistered","timestamp":1764000000000}', ("Unregistered", 1764000000000)),
        (b'{"reason":"Unregistered"}', ("Unregistered", 0)),
        (b'{"reason":"Unregistered","timestamp":"soon"}', ("Unregistered", 0)),
        (b'{"reason":"Unregistered","timestamp":-1}', ("Unregistered", 0)),
        (b'{"reason":"Unregistered","timestamp":true}', ("Unregistered", 0)),
        (b'{"reason":"the token 0d0d of somebody"}', ("", 0)),
        (b'{"reason":["BadTopic"]}', ("", 0)),
        (b"[]", ("", 0)),
        (b"", ("", 0)),
        (b"\xff", ("", 0)),
        (b"[" * 50_000, ("", 0)),
    ],
)
def test_of_a_body_only_what_apple_says_is_kept(body, read):
    assert read_body(body) == read


def test_a_status_without_a_code_counts_for_itself():
    assert outcome_of(ApnsAnswer(403), NOW_S) == Outcome.refused(
        "HTTP 403: check what the key may do"
    )
    assert outcome_of(ApnsAnswer(410), NOW_S) == Outcome.gone("HTTP 410")
    assert outcome_of(ApnsAnswer(413), NOW_S) == Outcome.dead("HTTP 413")
    assert outcome_of(ApnsAnswer(503, after_s=7.0), NOW_S) == Outcome.throttled("HTTP 503", 7.0)
    assert outcome_of(ApnsAnswer(302), NOW_S) == Outcome.dead("HTTP 302", scope=None)
    throttled = outcome_of(ApnsAnswer(429, "TooManyRequests"), NOW_S)
    assert (throttled.kind, throttled.scope) == (Kind.RETRY, Scope.RECIPIENT)
