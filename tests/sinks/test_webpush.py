"""The Web Push sink against a push service on loopback: what a browser gets, what is refused."""

import asyncio
import json
import time
from email.utils import formatdate

import pytest

from pushlane.core.errors import BadInput
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Arrival, Outcome, Push, Scope
from pushlane.core.task import Level
from pushlane.dispatcher.sinks import sink_options
from pushlane.dispatcher.sinks.webpush import MAX_TTL_S, WebPushSink, outcome_of, topic
from pushlane.settings.payload_limits import WEB_PUSH_BYTES
from tests.emulators.http2_server import Answer
from tests.emulators.webpush import WebPushEmulator

TIMEOUT_S = 60.0
OTHER_KEY = "the browser subscribed with another vapid_key"
OVERHEAD = len(b'{"title":"","body":""}')


def options_of(emulator, **options):
    told = {
        "vapid_key": emulator.vapid_text,
        "subject": "mailto:push@example.com",
        "hosts": ["127.0.0.1"],
        "allow": ["127.0.0.1"],
        "only_http2": True,
        **options,
    }
    return sink_options("webpush", told, "sink web")


def sink_to(emulator, now=time.time, slots=100, **options):
    return WebPushSink(options_of(emulator, **options), slots, TIMEOUT_S, now=now)


async def deliver(emulator, push=None, level=Level.HIGH, payload=None, **options):
    """What becomes of one push to the first subscription."""
    sink = sink_to(emulator, **options)
    try:
        push = push or Push("task", 1, "somebody", "Title", "Body é")
        delivery = Delivery(push, level, emulator.subscriptions[0], payload)
        return (await sink.deliver([delivery]))[0]
    finally:
        await sink.close()


async def delivered(push=None, **told):
    """What the browser reads, and with which headers it came."""
    emulator = WebPushEmulator()
    async with emulator.running():
        assert await deliver(emulator, push, **told) is DELIVERED
    [(_, plaintext, headers)] = emulator.delivered
    return json.loads(plaintext), headers


async def test_the_browser_reads_title_body_and_data():
    push = Push("task", 1, "somebody", "Title", "Body é", {"url": "/sale"})

    content, headers = await delivered(push)

    assert content == {"title": "Title", "body": "Body é", "data": {"url": "/sale"}}
    assert (headers["ttl"], headers["urgency"]) == ("86400", "high")
    assert "topic" not in headers


@pytest.mark.parametrize("payload", [{"any": ["thing", 1]}, [], "text", 0])
async def test_a_payload_goes_as_it_is(payload):
    content, _ = await delivered(payload=payload)

    assert content == payload


@pytest.mark.parametrize(
    ("level", "urgency"), [(Level.HIGH, "high"), (Level.MEDIUM, "normal"), (Level.LOW, "low")]
)
async def test_the_level_is_the_urgency(level, urgency):
    _, headers = await delivered(level=level)

    assert headers["urgency"] == urgency


@pytest.mark.parametrize(
    ("expires_in_s", "ttl"), [(90, "90"), (-5, "0"), (10 * MAX_TTL_S, str(MAX_TTL_S))]
)
async def test_a_push_service_keeps_a_push_until_it_expires(expires_in_s, ttl):
    now_s = int(time.time())
    push = Push("task", 1, "r", expires_at_ms=(now_s + expires_in_s) * 1000)

    _, headers = await delivered(push, now=lambda: now_s)

    assert headers["ttl"] == ttl


async def test_a_push_that_does_not_expire_is_kept_as_long_as_the_settings_say():
    _, headers = await delivered(ttl_s=60)

    assert headers["ttl"] == "60"


async def test_pushes_of_one_collapse_key_have_one_topic():
    _, headers = await delivered(Push("task", 1, "r", collapse="score of a match: 2"))

    assert headers["topic"] == topic("score of a match: 2") != topic("score of a match: 3")
    assert "match" not in headers["topic"]


async def test_the_largest_content_is_taken_and_one_byte_more_is_dead():
    largest = WEB_PUSH_BYTES - OVERHEAD
    content, _ = await delivered(Push("task", 1, "r", "", "x" * largest))
    assert len(content["body"]) == largest

    emulator = WebPushEmulator()
    async with emulator.running():
        outcome = await deliver(emulator, Push("task", 1, "r", "", "x" * (largest + 1)))

    assert outcome == Outcome.dead("too large: over 3,993 bytes for a browser")


async def test_many_pushes_share_connections_and_one_token():
    emulator = WebPushEmulator(count=50, most_streams=20)
    async with emulator.running():
        sink = sink_to(emulator, streams=20)
        deliveries = [Delivery(Push("t", 1, "r"), Level.LOW, one) for one in emulator.subscriptions]
        ends = await asyncio.gather(*(sink.deliver([one]) for one in deliveries * 4))
        await sink.close()

    assert ends == [[DELIVERED]] * 200
    assert len(emulator.authorizations) == 1
    assert len(emulator.server.connections) <= 5
    assert emulator.server.refused == 0
    assert {token for token, *_ in emulator.delivered} == emulator.browsers.keys()


async def test_a_subscription_that_has_ended():
    emulator = WebPushEmulator(gone_after=1)
    async with emulator.running():
        assert await deliver(emulator) is DELIVERED
        assert await deliver(emulator) == Outcome.gone("HTTP 410: the subscription has ended")


async def test_a_key_that_browsers_did_not_subscribe_with_holds_the_sink():
    emulator, other = WebPushEmulator(), WebPushEmulator()
    async with emulator.running():
        outcome = await deliver(emulator, vapid_key=other.vapid_pem)

    assert outcome == Outcome.refused(f"HTTP 403: {OTHER_KEY}")


async def test_once_a_service_took_our_key_it_is_the_subscription_that_is_of_another_one():
    emulator = WebPushEmulator()
    async with emulator.running():
        sink = sink_to(emulator)
        delivery = Delivery(Push("t", 1, "r"), Level.HIGH, emulator.subscriptions[0])
        assert await sink.deliver([delivery]) == [DELIVERED]
        emulator.always = Answer(401, b'{"errno":109,"message":"VAPID public key mismatch"}')
        assert await sink.deliver([delivery]) == [Outcome.dead(f"HTTP 401: {OTHER_KEY}")]
        emulator.always = Answer(401)
        [outcome] = await sink.deliver([delivery])
        await sink.close()

    assert outcome.refuses_us


async def test_a_clock_that_is_ahead_of_the_push_services_is_told():
    now_s = time.time()
    emulator = WebPushEmulator()
    emulator.always = Answer(403, headers={"date": formatdate(now_s - 420, usegmt=True)})
    async with emulator.running():
        outcome = await deliver(emulator, now=lambda: now_s)

    assert outcome.reason.endswith("; our clock is 7 min ahead of the provider's")


async def test_a_token_of_a_clock_that_is_a_day_ahead_is_refused():
    emulator = WebPushEmulator()
    async with emulator.running():
        outcome = await deliver(emulator, now=lambda: time.time() + 86_400)

    assert outcome.refuses_us


async def test_a_retry_after_is_heeded():
    emulator = WebPushEmulator()
    emulator.always = Answer(429, headers={"retry-after": "120"})
    async with emulator.running():
        assert await deliver(emulator) == Outcome.throttled("HTTP 429", 120.0)


async def test_a_redirect_is_not_followed():
    emulator = WebPushEmulator(count=2)
    async with emulator.running():
        target = json.loads(emulator.subscriptions[1])["endpoint"]
        emulator.always = Answer(307, headers={"location": target})
        outcome = await deliver(emulator)

    assert outcome == Outcome.dead("HTTP 307: redirects are not followed", scope=None)
    assert len(emulator.server.requests) == 1


async def test_plain_http_is_refused_unless_its_address_is_allowed():
    emulator = WebPushEmulator()
    async with emulator.running():
        assert await deliver(emulator, allow=[]) == Outcome.dead("its URL is not https")


async def test_an_endpoint_of_another_service_is_not_called():
    emulator = WebPushEmulator()
    async with emulator.running():
        outcome = await deliver(emulator, hosts=["fcm.googleapis.com"])

    assert outcome == Outcome.dead("its endpoint is not of a push service that `hosts` lists")
    assert emulator.server.requests == []


async def test_a_malformed_subscription_is_dead_with_the_part_that_is_wrong():
    sink = sink_to(WebPushEmulator())

    [outcome] = await sink.deliver([Delivery(Push("t", 1, "r"), Level.HIGH, "secret-token")])
    await sink.close()

    assert outcome == Outcome.dead(
        "its subscription is not the JSON of a browser's PushSubscription"
    )


async def test_those_that_are_cancelled_are_counted_off():
    emulator, hosts = WebPushEmulator(), ["127.0.0.1", "localhost"]
    emulator.always = Answer(201, after_s=3600)
    async with emulator.running():
        options = options_of(emulator, hosts=hosts, allow=hosts)
        sink = WebPushSink(options, 1, TIMEOUT_S, clock_s=lambda: 1_000.0)
        [address] = emulator.subscriptions
        delivery, other = (
            Delivery(Push("t", 1, "r"), Level.HIGH, one)
            for one in (address, address.replace("127.0.0.1", "localhost"))
        )
        await sink.deliver([other])
        # As many as its breaker lets go without an answer, while another service is in use.
        running = [asyncio.create_task(sink.deliver([delivery])) for _ in range(102)]
        while len(emulator.server.requests) < 2:
            await asyncio.sleep(0)
        for one in running:
            one.cancel()
        ends = await asyncio.gather(*running, return_exceptions=True)
        assert [type(end) for end in ends] == [asyncio.CancelledError] * 102
        emulator.always = None
        assert await sink.deliver([delivery] * 2) == [DELIVERED] * 2
        await sink.close()


@pytest.mark.parametrize(
    ("status", "answer", "outcome"),
    [
        (406, b"", Outcome.throttled("HTTP 406", 7.0)),
        (503, b"", Outcome.throttled("HTTP 503", 7.0, arrival=Arrival.FAILED)),
        (500, b"", Outcome.retry("HTTP 500", 7.0)),
        (413, b"", Outcome.dead("HTTP 413: too large for the push service")),
        (400, b"secret text", Outcome.dead("HTTP 400", scope=None)),
        (
            400,
            b'{"reason":"VapidPkHashMismatch"}',
            Outcome.refused(f"HTTP 400: {OTHER_KEY}"),
        ),
    ],
)
def test_outcomes(status, answer, outcome):
    assert outcome_of(status, answer, 7.0) == outcome


def test_a_clock_that_is_off_is_told_where_a_token_is_refused():
    outcome = outcome_of(401, b"", None, "our clock is off")

    assert outcome.refuses_us
    assert outcome.reason.endswith("check subject and vapid_key; our clock is off")


def test_a_dead_subscription_is_about_its_recipient_alone():
    assert outcome_of(404, b"", None).scope is Scope.RECIPIENT


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"vapid_key": "x"}, "vapid_key is not a private key"),
        ({"subject": "push@example.com"}, "subject is not one that push services take"),
        ({"hosts": ["https://push.example.com/"]}, "'https://push.example.com/' is not a host"),
        ({"hosts": ["10.1.0.0/16"]}, "'10.1.0.0/16' is not a host of a push service"),
        (
            {"hosts": ["b\u00fccher.example"]},
            "'b\u00fccher.example' is not a host of a push service",
        ),
        ({"hosts": []}, "hosts is out of range; give a list of texts"),
        ({"hosts": "push.example.com"}, "hosts is a text; give a list of texts"),
        ({"allow": ["127.0.0.1/99"]}, "'127.0.0.1/99' is not a host"),
        ({"ttl_s": -1}, "ttl_s is out of range; give a whole number from 0 to 2,419,200"),
        ({"streams": 0}, "streams is out of range"),
        ({"host": []}, "has no option 'host'; did you mean 'hosts'"),
    ],
)
def test_an_option_that_cannot_be_is_named(options, told):
    with pytest.raises(BadInput, match=told):
        options_of(WebPushEmulator(), **options).open(10, TIMEOUT_S, False)


@pytest.mark.parametrize("missing", ["vapid_key", "subject"])
def test_an_option_that_is_missing_is_named(missing):
    told = {"vapid_key": "x", "subject": "y"}
    del told[missing]
    with pytest.raises(
        BadInput, match=f"sink web, of the kind webpush: needs the option {missing}"
    ):
        sink_options("webpush", told, "sink web")
