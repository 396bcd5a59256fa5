"""Each row of the table `fcm: answers` in docs/sinks-providers.md, against FCM's emulator."""

from contextlib import asynccontextmanager

import msgspec
import pytest
from h2.errors import ErrorCodes

from pushlane.core.ports import Delivery
from pushlane.core.push import Push
from pushlane.core.task import Level
from pushlane.dispatcher.sinks.fcm import FcmOptions
from tests.emulators.fcm import (
    DEVICE_RATE,
    INVALID_TOKEN,
    PROJECT_RATE,
    UNREGISTERED,
    FcmEmulator,
    bad_field,
    error_info,
    fcm_code,
    fcm_error,
    quota_failure,
)
from tests.emulators.http2_server import Answer, Reset, Silence
from tests.provider_answers import documented, in_words

UNAUTHENTICATED = fcm_error(401)
MISMATCH = fcm_error(403, fcm_code("SENDER_ID_MISMATCH"))
TOPIC_RATE = fcm_error(429, quota_failure("topic", "Topic message rate exceeded"))
APNS_KEY = fcm_error(401, fcm_code("THIRD_PARTY_AUTH_ERROR"))
OK = Answer(200, b"{}")
ADDRESS = "token-1:APA91b"


def fcm(*answers, **options):
    """FCM answers so; the outcome is that of the last answer's push."""
    return ("fcm", answers, options)


def always(reaction):
    """FCM reacts so to this address, however often the client itself asks."""
    return ("at", reaction, {})


def google(*answers):
    """The token server answers so."""
    return ("google", answers, {})


CASES = {
    "200": fcm(OK),
    "400 with a BadRequest that names the token or installation": fcm(
        fcm_error(400, fcm_code("INVALID_ARGUMENT"), bad_field("message.token"))
    ),
    "400 INVALID_ARGUMENT of FCM alone, on the registration token": fcm(
        fcm_error(400, fcm_code("INVALID_ARGUMENT"), message=INVALID_TOKEN)
    ),
    "400 otherwise: another field, a message that is too big": fcm(
        fcm_error(400, bad_field("message.data[0].value"))
    ),
    "401, then 200 with another access token": fcm(UNAUTHENTICATED, OK),
    "401, also with another access token": fcm(UNAUTHENTICATED, UNAUTHENTICATED),
    "401 THIRD_PARTY_AUTH_ERROR": fcm(APNS_KEY),
    "403 SENDER_ID_MISMATCH, when a push got through before": fcm(OK, MISMATCH),
    "403 SENDER_ID_MISMATCH, when none did": fcm(MISMATCH),
    "403 otherwise": fcm(fcm_error(403, error_info("SERVICE_DISABLED"))),
    "404 UNREGISTERED": fcm(UNREGISTERED),
    "404 otherwise": fcm(Answer(404, b"<html>Not Found</html>")),
    "429 with a QuotaFailure of a device or topic": fcm(TOPIC_RATE),
    "429 otherwise: the project, or FCM as a whole": fcm(PROJECT_RATE),
    "408, 425, 500, 502, 504, any other 5xx": fcm(fcm_error(500, fcm_code("INTERNAL"))),
    "503": fcm(fcm_error(503, fcm_code("UNAVAILABLE"))),
    "3xx, any other 4xx": fcm(Answer(302)),
    "no connection, or a stream that was refused": always(Reset(ErrorCodes.REFUSED_STREAM)),
    "a connection or stream that broke": fcm(Reset(ErrorCodes.INTERNAL_ERROR)),
    "no answer in time": fcm(Silence(), timeout_s=0.2),
    "no access token: Google refuses the credentials": google(
        (400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
    ),
    "no access token: no answer of Google's, 429 or 5xx": google((503, {})),
}


@asynccontextmanager
async def sink_to(emulator, timeout_s=30.0, **http2_transport):
    options = FcmOptions(
        credentials=msgspec.json.encode(emulator.tokens.service_account()).decode(),
        endpoint=emulator.url,
        **http2_transport,
    )
    sink = options.open(slots=4, timeout_s=timeout_s, retry_timeouts=False)
    try:
        yield sink
    finally:
        await sink.close()


async def pushed(sink):
    delivery = Delivery(Push("task", 1, "somebody", "Title"), Level.HIGH, ADDRESS)
    [outcome] = await sink.deliver([delivery])
    return outcome


async def outcome_after(who, answers, options):
    """The outcome of the push that the last of these answers is for."""
    async with FcmEmulator().running() as emulator, sink_to(emulator, **options) as sink:
        if who == "at":
            emulator.at = {ADDRESS: answers}
        else:
            (emulator.tokens if who == "google" else emulator).answers = list(answers)
        outcome = await pushed(sink)
        while emulator.answers:
            outcome = await pushed(sink)
        return outcome


def test_the_table_has_these_rows():
    assert set(documented("fcm")) == set(CASES)


@pytest.mark.parametrize("row", CASES)
async def test_an_answer(row, http2_transport):
    who, answers, options = CASES[row]
    outcome = await outcome_after(who, answers, {**options, **http2_transport})
    assert in_words(outcome) == documented("fcm")[row]


@pytest.mark.parametrize("rate", [DEVICE_RATE, TOPIC_RATE, PROJECT_RATE])
async def test_a_429_without_retry_after_waits_a_minute(rate):
    assert (await outcome_after(*fcm(rate))).after_s == 60.0


async def test_a_429_waits_as_long_as_fcm_asks():
    rate = fcm_error(429, headers={"retry-after": "7"})
    assert (await outcome_after(*fcm(rate))).after_s == 7.0


async def test_a_message_that_is_too_big_kills_no_address():
    async with FcmEmulator().running() as emulator, sink_to(emulator) as sink:
        push = Push("task", 1, "somebody", "Title", "x" * 4100)
        [outcome] = await sink.deliver([Delivery(push, Level.HIGH, ADDRESS)])
    assert in_words(outcome) == "dead"


async def test_nobody_at_the_endpoint_is_about_the_sink():
    async with FcmEmulator().running() as emulator:
        credentials = msgspec.json.encode(emulator.tokens.service_account()).decode()
        options = FcmOptions(credentials=credentials, endpoint="http://127.0.0.1:9")
        sink = options.open(slots=1, timeout_s=5.0, retry_timeouts=False)
        outcome = await pushed(sink)
        await sink.close()
    assert in_words(outcome) == "retried (not counted); the sink rests"
