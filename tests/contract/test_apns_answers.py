"""Each row of the table of APNs in docs/sinks-providers.md, by the sink against the emulator."""

import pytest
from h2.errors import ErrorCodes

from pushlane.core.ports import Delivery
from pushlane.core.push import Outcome, Push
from pushlane.core.task import Level
from pushlane.dispatcher.sinks.apns import ApnsOptions, ApnsSink
from pushlane.dispatcher.sinks.http_client import Timeouts
from tests.emulators.apns import KEY_ID, TEAM_ID, TOPIC, Apns, refused
from tests.emulators.http2_server import Reset, Silence
from tests.provider_answers import documented, in_words

GOOD = "0d" * 32
DEAD = "de" * 32
GONE_AT_MS = 1_764_000_000_000
NOW_S = 735_000 * 2_400 + 1_800.0  # our token is half an hour old


def answers(status, code):
    """The last of a row of pushes, after the first that was delivered, gets this answer."""

    async def case(apns, send):
        await send(GOOD)
        apns.says = lambda request: refused(status, code)
        return await send(DEAD)

    return case


def gone(code):
    async def case(apns, send):
        apns.says = lambda request: refused(410, code, GONE_AT_MS)
        outcome = await send(DEAD)
        assert outcome == Outcome.gone(code, GONE_AT_MS)
        return outcome

    return case


def bad(code, count, after_one_delivered):
    async def case(apns, send):
        if after_one_delivered:
            await send(GOOD)
        apns.says = lambda request: refused(400, code)
        outcomes = [await send(f"{number:064x}") for number in range(count)]
        assert not any(outcome.refuses_us for outcome in outcomes[:-1])
        return outcomes[-1]

    return case


def after_a_quarter(code, status=500):
    async def case(apns, send):
        apns.says = lambda request: refused(status, code)
        outcome = await send(GOOD)
        assert outcome.after_s == 15 * 60
        return outcome

    return case


def late_clock(minutes):
    async def case(apns, send):
        apns.now = lambda: NOW_S + minutes * 60
        outcome = await send(GOOD)
        assert len(apns.server.requests) == 2
        return outcome

    return case


async def refused_stream(apns, send):
    apns.says = lambda request: Reset(ErrorCodes.REFUSED_STREAM)
    return await send(GOOD)


async def broken(apns, send):
    apns.says = lambda request: Reset(ErrorCodes.INTERNAL_ERROR)
    return await send(GOOD)


async def silent(apns, send):
    apns.says = lambda request: Silence()
    return await send(GOOD)


async def delivered(apns, send):
    return await send(GOOD)


async def unsent(apns, send, **fields):
    outcome = await send(**fields)
    assert not apns.server.requests
    return outcome


async def no_address(apns, send):
    return await unsent(apns, send, address="not/a/token?")


async def too_large(apns, send):
    return await unsent(apns, send, address=GOOD, payload={"text": "x" * 4096})


CASES = {
    "200": delivered,
    "400 BadDeviceToken before anything was delivered": bad("BadDeviceToken", 1, False),
    "400 BadDeviceToken for 10 addresses before anything was delivered": bad(
        "BadDeviceToken", 10, False
    ),
    "400 BadDeviceToken for 100 addresses in a row": bad("BadDeviceToken", 100, True),
    "400 DeviceTokenNotForTopic before anything was delivered": bad(
        "DeviceTokenNotForTopic", 1, False
    ),
    "403 ExpiredProviderToken once": late_clock(35),
    "403 ExpiredProviderToken twice": late_clock(70),
    "410 ExpiredToken": gone("ExpiredToken"),
    "410 Unregistered": gone("Unregistered"),
    "500 InternalServerError": after_a_quarter("InternalServerError"),
    "another 400": answers(400, "Unheard"),
    "another 401 or 403": answers(401, "Unheard"),
    "another 429": answers(429, "Unheard"),
    "another 5xx": after_a_quarter("Unheard", 502),
    "no connection, a stream that was refused": refused_stream,
    "a connection that broke": broken,
    "no answer in time": silent,
    "none: the address is no hexadecimal number": no_address,
    "none: the payload is over 4,096 bytes (VoIP 5,120)": too_large,
    **{
        f"{status} {code}": answers(status, code)
        for status, codes in {
            400: "BadCollapseId BadDeviceToken BadExpirationDate BadMessageId BadPriority BadTopic "
            "DeviceTokenNotForTopic DuplicateHeaders IdleTimeout InvalidPushType "
            "MissingDeviceToken MissingTopic PayloadEmpty TopicDisallowed",
            403: "BadCertificate BadCertificateEnvironment BadEnvironmentKeyIdInToken "
            "BadEnvironmentKeyInToken Forbidden InvalidProviderToken MissingProviderToken "
            "UnrelatedKeyIdInToken",
            404: "BadPath",
            405: "MethodNotAllowed",
            413: "PayloadTooLarge",
            429: "TooManyProviderTokenUpdates TooManyRequests",
            503: "ServiceUnavailable Shutdown",
        }.items()
        for code in codes.split()
    },
}


@pytest.mark.parametrize("answer", CASES)
async def test_an_answer_means_what_the_table_says(answer, http2_transport):
    apns = Apns(now=lambda: NOW_S)
    timeouts = Timeouts(0.2 if answer == "no answer in time" else 60.0)

    async with apns.server.running() as server:
        given = {"key": apns.pem(), "key_id": KEY_ID, "team_id": TEAM_ID, "topic": TOPIC}
        options = ApnsOptions(**given, endpoint=server.url, **http2_transport)
        sink = ApnsSink(options, 1, timeouts, now=lambda: NOW_S)

        async def send(address, payload=None):
            push = Push("task", 1, "somebody", "Title", "Body")
            [outcome] = await sink.deliver([Delivery(push, Level.HIGH, address, payload)])
            return outcome

        try:
            outcome = await CASES[answer](apns, send)
        finally:
            await sink.close()

    waits = ", after 15 minutes" if outcome.after_s == 15 * 60 else ""
    assert in_words(outcome) + waits == documented("apns")[answer]


def test_the_table_has_a_row_for_each_case_and_no_other():
    assert documented("apns").keys() == CASES.keys()
