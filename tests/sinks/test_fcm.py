"""The FCM sink against its emulator: what a push becomes, and how its credentials are treated."""

import asyncio
import json
from contextlib import asynccontextmanager

import msgspec
import pytest

from pushlane.core.errors import BadInput
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Arrival, Outcome, Push, Scope
from pushlane.core.task import Level
from pushlane.dispatcher.sinks import sink_options
from pushlane.dispatcher.sinks.fcm import (
    LONGEST_TTL_S,
    FcmOptions,
    MessageEncoder,
    Target,
    outcome_of,
)
from tests.emulators.fcm import FcmEmulator, fcm_code, fcm_error, quota_failure
from tests.emulators.google_token import GoogleTokenServer, rsa_key
from tests.emulators.http2_server import Answer

INSTALLATION = "dIsVQ2QVRT-TW7L6VfeAMh"
TOKEN = f"{INSTALLATION}:APA91bHPRgkF3JUikC4ENAHEeMrd41Zxv3hVZjC9KtT8OvPVGJ-hQMRKRrZuJAEcl7B3"
NOW_S = 1_000_000


def encoded(push=None, level=Level.HIGH, address=TOKEN, payload=None, **options):
    """The request for a push, decoded."""
    push = push or Push("task", 1, "somebody", "Title", "Body")
    encoder = MessageEncoder(options.get("target", Target.DEVICE), options.get("dry_run", False))
    return json.loads(encoder.body(Delivery(push, level, address, payload), NOW_S))


def message_of(**fields):
    return encoded(Push("task", 1, "somebody", **fields))["message"]


@asynccontextmanager
async def sink_to(emulator, key=None, slots=10, **options):
    credentials = emulator.tokens.service_account(key)
    given = {"credentials": json.dumps(credentials), "endpoint": emulator.url, **options}
    sink = sink_options("fcm", given, "sink app").open(slots, 30.0, False)
    try:
        yield sink
    finally:
        await sink.close()


async def pushed(sink, seq=1, address=TOKEN, **fields):
    push = Push("task", seq, "somebody", "Title", "Body", **fields)
    [outcome] = await sink.deliver([Delivery(push, Level.HIGH, address)])
    return outcome


def test_title_and_body_are_the_notification_and_nothing_else_is_added():
    assert encoded(level=Level.LOW) == {
        "message": {
            "android": {"priority": "NORMAL"},
            "notification": {"title": "Title", "body": "Body"},
            "token": TOKEN,
        }
    }


def test_without_title_and_body_it_is_a_data_message():
    assert message_of(data={"n": "1"}) == {
        "android": {"priority": "HIGH"},
        "data": {"n": "1"},
        "token": TOKEN,
    }


@pytest.mark.parametrize(("level", "priority"), [("high", "HIGH"), ("medium", "NORMAL")])
def test_the_priority_is_the_levels(level, priority):
    assert encoded(level=Level(level))["message"]["android"] == {"priority": priority}


def test_data_is_text():
    data = {"a": "é", "b": 1, "c": 1.5, "d": True, "e": None, "f": {"g": [1]}}
    texts = {"a": "é", "b": "1", "c": "1.5", "d": "true", "e": "null", "f": '{"g":[1]}'}
    assert message_of(data=data)["data"] == texts


def test_an_expiry_is_a_time_to_live_on_each_platform():
    message = message_of(expires_at_ms=(NOW_S + 90) * 1000)
    assert message["android"] == {"priority": "HIGH", "ttl": "90s"}
    assert message["apns"] == {"headers": {"apns-expiration": str(NOW_S + 90)}}
    assert message["webpush"] == {"headers": {"TTL": "90"}}


@pytest.mark.parametrize(("expires_s", "ttl"), [(NOW_S * 9, f"{LONGEST_TTL_S}s"), (1, "0s")])
def test_a_time_to_live_is_one_that_fcm_takes(expires_s, ttl):
    assert message_of(expires_at_ms=expires_s * 1000)["android"]["ttl"] == ttl


@pytest.mark.parametrize(
    ("key", "apns", "webpush"),
    [
        ("order-7", "order-7", "order-7"),
        ("order 7", "order 7", None),
        ("k" * 33, "k" * 33, None),
        ("é" * 33, None, None),
    ],
)
def test_a_collapse_key_goes_where_it_is_one(key, apns, webpush):
    message = message_of(collapse=key)
    assert message["android"]["collapse_key"] == key
    assert message.get("apns", {}).get("headers", {}).get("apns-collapse-id") == apns
    assert message.get("webpush", {}).get("headers", {}).get("Topic") == webpush


@pytest.mark.parametrize(
    ("target", "address", "field"),
    [
        ("device", TOKEN, "token"),
        ("device", INSTALLATION, "fid"),
        ("device", "x" + INSTALLATION[1:], "token"),
        ("token", INSTALLATION, "token"),
        ("fid", TOKEN, "fid"),
        ("topic", "news", "topic"),
        ("condition", "'a' in topics", "condition"),
    ],
)
def test_an_address_is_what_the_sink_says(target, address, field):
    message = encoded(address=address, target=Target(target))["message"]
    assert {name: message[name] for name in Target if name in message} == {field: address}


def test_a_payload_is_the_message_with_the_address_put_in():
    payload = {"data": {"a": "b"}, "android": {"direct_boot_ok": True}}
    assert encoded(payload=payload) == {"message": {**payload, "token": TOKEN}}


def test_a_dry_run_only_validates():
    assert encoded(dry_run=True)["validate_only"] is True


async def test_a_payload_that_is_no_object_is_dead_and_not_sent():
    async with FcmEmulator().running() as emulator, sink_to(emulator) as sink:
        [outcome] = await sink.deliver([Delivery(Push("t", 1, "r"), Level.LOW, TOKEN, [1])])
        assert emulator.server.requests == []
    assert (outcome.kind, outcome.arrival) == ("dead", Arrival.REFUSED)


async def test_every_kind_of_push_is_one_that_fcm_takes():
    expiring = {"expires_at_ms": 4_000_000_000_000, "collapse": "c", "data": {"n": 1}}
    async with FcmEmulator().running() as emulator, sink_to(emulator) as sink:
        assert await pushed(sink, **expiring) == DELIVERED
        assert await pushed(sink, address=INSTALLATION) == DELIVERED
        assert [sorted({"token", "fid"} & one.keys()) for one in emulator.delivered] == [
            ["token"],
            ["fid"],
        ]


async def test_a_dry_run_delivers_nothing():
    async with FcmEmulator().running() as emulator, sink_to(emulator, dry_run=True) as sink:
        assert await pushed(sink) == DELIVERED
        assert emulator.delivered == []


async def test_many_pushes_take_one_access_token_and_few_connections():
    async with FcmEmulator().running() as emulator, sink_to(emulator, slots=50) as sink:
        outcomes = await asyncio.gather(*(pushed(sink, seq) for seq in range(1, 51)))
        assert set(outcomes) == {DELIVERED}
        assert (len(emulator.delivered), emulator.tokens.asked) == (50, 1)


async def test_a_token_that_fcm_refuses_is_renewed_once_for_all_and_no_attempt_is_lost():
    async with FcmEmulator().running() as emulator, sink_to(emulator, slots=50) as sink:
        await pushed(sink)
        emulator.tokens.good.clear()
        outcomes = await asyncio.gather(*(pushed(sink, seq) for seq in range(1, 51)))
        assert set(outcomes) == {DELIVERED}
        assert emulator.tokens.asked == 2


async def test_a_project_that_is_another_holds_the_sink():
    async with FcmEmulator().running() as emulator, sink_to(emulator, project="other") as sink:
        outcome = await pushed(sink)
    assert outcome == Outcome.refused(
        "HTTP 403 CONSUMER_INVALID: there is no such project; check project"
    )


async def test_a_key_that_google_refuses_holds_the_sink_and_fcm_is_not_asked():
    async with FcmEmulator().running() as emulator, sink_to(emulator, rsa_key(1)) as sink:
        outcome = await pushed(sink)
        assert emulator.server.requests == []
    assert (outcome.refuses_us, outcome.scope, "key" in outcome.reason) == (True, Scope.SINK, True)


async def test_the_quota_of_the_project_rests_the_sink_and_that_of_a_device_its_address():
    limited = FcmEmulator(quota=3, device_quota=1)
    async with limited.running() as emulator, sink_to(emulator) as sink:
        outcomes = [await pushed(sink, address=to) for to in ("a", "a", "b", "c", "d")]
    assert [outcome.scope for outcome in outcomes] == [
        None,
        Scope.RECIPIENT,
        None,
        None,
        Scope.SINK,
    ]


def test_a_quota_of_the_project_rests_the_sink_in_whatever_form():
    body = fcm_error(429, quota_failure("project:1", "Message rate exceeded")).body
    assert outcome_of(429, body, None, 0.0).scope is Scope.SINK


@pytest.mark.parametrize(("status", "arrival"), [(429, "refused"), (503, "failed")])
def test_only_a_429_says_that_the_push_has_not_arrived(status, arrival):
    assert outcome_of(status, b"", None, 0.0).arrival == arrival


def test_a_topic_is_never_gone():
    invalid = fcm_error(400, fcm_code("INVALID_ARGUMENT"), message="bad registration token")
    body = invalid.body
    assert outcome_of(400, body, None, 0.0, to_device=False).scope is Scope.PUSH
    assert outcome_of(400, body, None, 0.0, to_device=True).scope is Scope.RECIPIENT


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"error":3}',
        b'{"error":{"details":[1]}}',
        b'{"error":{"message":"\xff"}}',
        b'{"a":' + b"[" * 50_000,
    ],
)
@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 503])
def test_an_answer_that_is_not_fcms_kills_no_address(status, body):
    assert outcome_of(status, body, None, 0.0).scope is not Scope.RECIPIENT


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500])
async def test_no_reason_has_words_of_the_push_or_of_fcm(status):
    secret = "s3cret"
    async with FcmEmulator().running() as emulator, sink_to(emulator) as sink:
        emulator.at = {secret: fcm_error(status, {"reason": secret}, message=secret)}
        outcome = await pushed(sink, address=secret)
    assert secret not in repr(outcome)


async def test_an_answer_that_is_cut_off_is_read_by_its_status():
    async with FcmEmulator().running() as emulator, sink_to(emulator) as sink:
        emulator.answers = [Answer(503, b'{"error":', {"retry-after": "3"})]
        outcome = await pushed(sink)
    assert (outcome.scope, outcome.after_s) == (Scope.SINK, 3.0)


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ("message.data[0].value", "FCM does not take the message's data"),
        ("message.notification", "FCM does not take the message's notification"),
        ("message.android.ann-secret", "FCM does not take the message's android"),
        ("message.ann-secret", "FCM does not take the message"),
        ("ann-secret", "FCM does not take the message"),
    ],
)
def test_the_part_of_a_message_that_fcm_does_not_take_is_named_and_nothing_further_in(field, told):
    wrong = {
        "@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [{"field": field}],
    }
    body = json.dumps({"error": {"details": [wrong]}}).encode()

    assert outcome_of(400, body, None, 0.0).reason == f"HTTP 400 INVALID_ARGUMENT: {told}"


def account(**changes):
    server = GoogleTokenServer()
    server.url = "http://127.0.0.1:1"
    return json.dumps(server.service_account(**changes))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "needs the option credentials"),
        ({"credentials": "x"}, "credentials are not a JSON object"),
        ({"credentials": account(project_id="")}, "give the option project"),
        ({"credentials": account(), "project": "a/b"}, "cannot be the id of a Firebase project"),
        ({"credentials": account(), "endpoint": "fcm"}, "endpoint is not a URL"),
        (
            {"credentials": account(), "address": "phone"},
            "address is not one of its words; give one of device, token",
        ),
        ({"credentials": account(), "streams": 0}, "streams"),
        ({"credentials": account(), "dryrun": True}, "did you mean 'dry_run'"),
    ],
)
def test_options_that_cannot_be(options, told):
    with pytest.raises(BadInput) as caught:
        sink_options("fcm", options, "sink app").open(1, 1.0, False)
    assert told in str(caught.value)


def test_options_never_show_the_credentials():
    assert "PRIVATE" not in repr(msgspec.convert({"credentials": account()}, FcmOptions))
