"""Each row of the table of what gorush's answers mean, by the sink against its emulator."""

import pytest

from pushlane.core.ports import Delivery
from pushlane.core.push import Push
from pushlane.core.task import Level
from pushlane.dispatcher.sinks import sink_options
from pushlane.dispatcher.sinks.gorush import (
    ABOUT_THE_PUSH,
    BUSY,
    CREDENTIALS,
    ELSEWHERE,
    FAILED,
    GONE,
)
from tests.contract.test_webhook_answers import CASES as WEBHOOK_CASES
from tests.contract.test_webhook_answers import HANG_S, LONG_S, NOBODY
from tests.emulators.gorush import Gorush
from tests.emulators.http1_server import Http1Server
from tests.emulators.http2_server import Answer, Silence
from tests.provider_answers import documented, in_words

TRANSPORT = 'Post "https://api.push.apple.com/3/device/f00": context deadline exceeded'

ERRORS = {
    "`Unregistered`, `ExpiredToken`; `NotRegistered` of an older gorush": GONE,
    "`BadDeviceToken`, `DeviceTokenNotForTopic`; `InvalidRegistration` of an older gorush; "
    '"Requested entity was not found.", "SenderId mismatch", "The registration token is not a '
    'valid FCM registration token"': tuple(ELSEWHERE),
    "`BadCollapseId`, `BadExpirationDate`, `BadMessageId`, `BadPriority`, `DuplicateHeaders`, "
    "`InvalidPushType`, `MissingDeviceToken`, `PayloadEmpty`, `PayloadTooLarge`": ABOUT_THE_PUSH,
    "`BadCertificate`, `BadCertificateEnvironment`, `BadEnvironmentKeyInToken`, `BadTopic`, "
    "`ExpiredProviderToken`, `Forbidden`, `InvalidProviderToken`, `MissingProviderToken`, "
    "`MissingTopic`, `TopicDisallowed`": CREDENTIALS,
    "`TooManyRequests`": ("TooManyRequests",),
    "`TooManyProviderTokenUpdates`, `ServiceUnavailable`, `Shutdown`; max capacity reached": BUSY,
    '"failed to establish a connection: …", "Post …: dial tcp …"': (
        "failed to establish a connection: dial tcp: refused",
        'Post "https://api.push.apple.com/3/device/f00": dial tcp: lookup: no such host',
        'Post "https://push/3/device/f00": proxyconnect tcp: dial tcp [::1]:9: refused',
    ),
    "`IdleTimeout`, `InternalServerError`": FAILED,
    "any other text": (TRANSPORT, "Quota exceeded.", "unregistered"),
}
ANSWERS = {
    "2xx, and it is not among the failed": [Gorush(), Gorush(sync=False)],
    "2xx with `counts` of 0": [Gorush(enabled=["android"])],
    '400 "Number of notifications(N) over limit(M)"': [Gorush(max_notification=1)],
    "2xx with another body": [
        lambda request, body=body: Answer(200, body)
        for body in (b"", b"<html>OK</html>", b'{"success":"ok"}', b'{"counts":2,"logs":[7]}')
    ],
}


async def outcomes_of(react, transport, *tokens, timeout_s=LONG_S, retry_timeouts=False):
    async with Http1Server(react or (lambda request: Silence())).running() as server:
        url = "http://127.0.0.1:9" if react is NOBODY else server.url
        options = sink_options("gorush", {"url": url, "platform": "ios", **transport}, "the sink")
        sink = options.open(10, timeout_s, retry_timeouts)
        outcomes = await sink.deliver(
            [
                Delivery(Push("task", seq, "somebody"), Level.HIGH, token)
                for seq, token in enumerate(tokens or ("a", "b"), 1)
            ]
        )
        await sink.close()
        return outcomes


def test_each_row_has_a_case_and_each_case_a_row():
    assert documented("gorush").keys() == {*ERRORS, *ANSWERS}


@pytest.mark.parametrize("answer", ERRORS)
async def test_an_error_means_what_its_row_says(answer, transport):
    expected = documented("gorush")[answer]
    for error in ERRORS[answer]:
        failed, well = await outcomes_of(Gorush(), transport, f"{error}:device", "other")
        assert (in_words(failed), in_words(well)) == (expected, "delivered"), error
        assert "device" not in failed.reason
        assert "f00" not in failed.reason


@pytest.mark.parametrize("answer", ANSWERS)
async def test_an_answer_means_what_its_row_says(answer, transport):
    for react in ANSWERS[answer]:
        outcomes = await outcomes_of(react, transport)
        assert [in_words(one) for one in outcomes] == [documented("gorush")[answer]] * 2


@pytest.mark.parametrize("answer", [each for each in WEBHOOK_CASES if each != "2xx"])
async def test_any_other_answer_is_about_all_pushes_as_a_webhooks_is_about_one(answer, transport):
    for reaction in WEBHOOK_CASES[answer]:
        outcomes = await outcomes_of(
            NOBODY if reaction is NOBODY else lambda request, reaction=reaction: reaction,
            transport,
            timeout_s=HANG_S if isinstance(reaction, Silence) else LONG_S,
            retry_timeouts="`retry_timeouts`" in answer,
        )
        words = [in_words(outcome) for outcome in outcomes]
        assert words == [documented("webhook")[answer]] * 2, reaction
