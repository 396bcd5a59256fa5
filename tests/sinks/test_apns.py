"""The sink of APNs against the emulator: what it sends, and what it makes of an answer."""

import asyncio
import json
from hashlib import sha256
from uuid import UUID

import pytest

from pushlane.core.errors import BadInput
from pushlane.core.push import DELIVERED, Outcome, Push
from pushlane.core.task import Level
from pushlane.dispatcher.sinks import sink_options
from pushlane.dispatcher.sinks.apns import ApnsOptions
from tests.emulators.apns import ENDINGS, KEY_ID, TEAM_ID, TOPIC, Apns
from tests.sinks.apns_support import DEVICE, NOW_S, delivery, push, send, sink_to


async def sent(one, **options):
    """The request that the emulator took."""
    apns = Apns(now=lambda: NOW_S)
    assert await send(apns, one, **options) == [DELIVERED]
    [request] = apns.delivered
    return request


async def test_a_push_is_an_alert_with_its_data_beside_it():
    request = await sent(delivery(push(data={"order": 7, "tags": ["a"]})))

    assert (request.method, request.path) == ("POST", f"/3/device/{DEVICE}")
    assert json.loads(request.body) == {
        "aps": {"alert": {"title": "Title", "body": "Body é"}},
        "order": 7,
        "tags": ["a"],
    }
    assert request.headers["apns-topic"] == TOPIC
    assert request.headers["apns-push-type"] == "alert"
    assert "apns-expiration" not in request.headers
    assert "apns-collapse-id" not in request.headers


async def test_what_has_no_title_shows_its_body_alone():
    request = await sent(delivery(Push("task", 1, "somebody", body="Body")))

    assert json.loads(request.body) == {"aps": {"alert": {"body": "Body"}}}


async def test_a_payload_goes_as_it_is():
    payload = {"aps": {"badge": 3, "alert": {"loc-key": "HELLO"}}, "x": None}

    request = await sent(delivery(push(data={"left": "out"}), payload=payload))

    assert json.loads(request.body) == payload


@pytest.mark.parametrize(
    ("push_type", "level", "priority"),
    [
        ("alert", Level.HIGH, "10"),
        ("alert", Level.MEDIUM, "5"),
        ("alert", Level.LOW, "5"),
        ("background", Level.HIGH, "5"),
        ("background", Level.MEDIUM, "5"),
        ("background", Level.LOW, "1"),
    ],
)
async def test_the_priority_follows_the_level(push_type, level, priority):
    request = await sent(delivery(level=level), push_type=push_type)

    assert request.headers["apns-priority"] == priority


async def test_a_background_push_wakes_the_app_and_shows_nothing():
    request = await sent(delivery(push(data={"sync": "mail"})), push_type="background")

    assert json.loads(request.body) == {"aps": {"content-available": 1}, "sync": "mail"}


@pytest.mark.parametrize("push_type", ENDINGS)
async def test_a_topic_gets_the_ending_of_its_push_type(push_type):
    request = await sent(delivery(), push_type=push_type)

    assert request.headers["apns-push-type"] == push_type
    assert request.headers["apns-topic"] == TOPIC + ENDINGS[push_type]


async def test_a_topic_that_has_the_ending_stays():
    request = await sent(delivery(), push_type="voip", topic=f"{TOPIC}.voip")

    assert request.headers["apns-topic"] == f"{TOPIC}.voip"


async def test_an_expiry_goes_along_in_seconds():
    request = await sent(delivery(push(expires_at_ms=1_800_000_000_999)))

    assert request.headers["apns-expiration"] == "1800000000"


@pytest.mark.parametrize("key", ["order-7", "x" * 64])
async def test_a_collapse_key_goes_along(key):
    request = await sent(delivery(push(collapse=key)))

    assert request.headers["apns-collapse-id"] == key


@pytest.mark.parametrize("key", ["x" * 65, "Bestellung ß", "two words", "line\nbreak"])
async def test_a_collapse_key_that_a_header_cannot_hold_is_hashed(key):
    request = await sent(delivery(push(collapse=key)))

    assert request.headers["apns-collapse-id"] == sha256(key.encode()).hexdigest()


async def test_every_attempt_of_a_push_has_the_same_id_and_no_other_push_has_it():
    apns = Apns(now=lambda: NOW_S)

    await send(apns, delivery(push(1)), delivery(push(1, attempt=2)), delivery(push(2)))

    first, again, other = (UUID(each.headers["apns-id"]) for each in apns.delivered)
    assert first == again != other


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (
            delivery(push(data={"aps": {}})),
            'data has the key "aps", which is Apple\'s: give a payload',
        ),
        (delivery(payload="text"), "the payload is not an object"),
        (delivery(payload={"x": "y" * 4096}), "the payload is over 4,096 bytes"),
    ],
)
async def test_what_cannot_be_sent_is_dead_and_not_asked_about(one, reason):
    apns = Apns()

    assert await send(apns, one) == [Outcome.dead(reason)]
    assert not apns.server.requests


async def test_a_voip_payload_may_be_larger():
    payload = {"x": "y" * 5_000}

    request = await sent(delivery(payload=payload), push_type="voip")

    assert len(request.body) > 4_096


@pytest.mark.parametrize("address", ["", "../../3/device/aa", "aa?x=1", "zz", "aa bb", "a" * 2000])
async def test_an_address_that_is_no_token_of_apple_never_becomes_part_of_a_url(address):
    apns = Apns()

    [outcome] = await send(apns, delivery(address=address))

    assert outcome == Outcome.gone("not an APNs token: it is no hexadecimal number")
    assert not apns.server.requests


async def test_requests_in_flight_take_more_than_the_one_stream_that_apns_allows_at_first():
    apns = Apns(now=lambda: NOW_S, latency_s=0.005)

    async with apns.server.running() as server:
        sink = sink_to(apns, slots=60, streams=20)
        pushes = [delivery(push(seq)) for seq in range(1, 301)]
        outcomes = await asyncio.gather(*(sink.deliver([each]) for each in pushes))
        await sink.close()

    assert outcomes == [[DELIVERED]] * 300
    assert len(server.connections) == 3
    assert server.peak_early == 1
    assert 1 < server.peak_streams <= 20
    assert server.refused == 0
    assert len(apns.tokens) == 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"key_id": "SHORT"}, "key_id is not 10 letters and digits"),
        ({"team_id": "DEF123GHIJK"}, "team_id is not 10 letters and digits"),
        ({"topic": "com.example shop"}, "topic is not a bundle id"),
        ({"topic": ""}, "topic is not a bundle id"),
        ({"endpoint": "api.push.apple.com"}, "endpoint is not a URL"),
        ({"key": "secret"}, "key is not a private key in PEM"),
        (
            {"environment": "development"},
            "environment is not one of its words; give one of production",
        ),
        ({"push_type": "mdm"}, "push_type is not one of its words; give one of alert, back"),
        ({"streams": 0}, "streams is out of range; give a whole number from 1 to 1,000"),
        ({"bundle": "x"}, "the kind apns has no option 'bundle'"),
    ],
)
async def test_an_option_that_cannot_be_is_refused(options, told):
    given = {"key": Apns().pem(), "key_id": KEY_ID, "team_id": TEAM_ID, "topic": TOPIC, **options}

    with pytest.raises(BadInput, match=told) as refusal:
        sink_options("apns", given, "sink ios").open(1, 1.0, False)

    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("missing", ["key", "key_id", "team_id", "topic"])
def test_what_it_needs_is_asked_for_by_name(missing):
    given = {"key": "x", "key_id": KEY_ID, "team_id": TEAM_ID, "topic": TOPIC}
    del given[missing]

    with pytest.raises(BadInput, match=f"needs the option {missing}$"):
        sink_options("apns", given, "sink ios")


def test_its_options_show_no_key():
    options = ApnsOptions(key="secret", key_id=KEY_ID, team_id=TEAM_ID, topic=TOPIC)

    assert "secret" not in repr(options)
