"""Each row of the table of what the hosts answer that are the addresses of pushes."""

import pytest
from h2.errors import ErrorCodes

from pushlane.core.ports import Delivery
from pushlane.core.push import Push
from pushlane.core.task import Level
from pushlane.dispatcher.failures import Sign, sign_of
from pushlane.dispatcher.sinks.webhook import WebhookOptions
from tests.emulators.http1_server import Http1Server
from tests.emulators.http2_server import Answer, Reset, Silence
from tests.provider_answers import documented, in_words

KIND = "webhook with to_address"
HANG_S = 1.0  # a loaded machine, too, connects in half of it
LONG_S = 60.0
NOBODY = None  # listens there

CASES = {
    "2xx": [Answer(200), Answer(202), Answer(204)],
    "no connection: refused, no route, TLS, not connected in time": [NOBODY],
    "429, 503, with or without Retry-After": [
        Answer(429),
        Answer(503),
        Answer(503, headers={"Retry-After": "7"}),
    ],
    "408, 425, 500, 502, 504, any other 5xx": [
        Answer(code) for code in (408, 425, 500, 502, 504, 599)
    ],
    "a connection that broke": [Reset(ErrorCodes.INTERNAL_ERROR)],
    "no answer in time": [Silence()],
    "no answer in time, with `retry_timeouts`": [Silence()],
    "401, 403": [Answer(401), Answer(403)],
    "410": [Answer(410)],
    "3xx, 400, 404, 413, any other 4xx": [
        Answer(code) for code in (301, 307, 400, 404, 413, 422, 451)
    ],
}


async def outcome_of(reaction, transport, *, retry_timeouts):
    async with Http1Server(lambda request: reaction).running() as server:
        timeout_s = HANG_S if isinstance(reaction, Silence) else LONG_S
        url = "http://127.0.0.1:9" if reaction is NOBODY else server.url
        options = WebhookOptions(to_address=True, allow=("127.0.0.1",), **transport)
        sink = options.open(1, timeout_s, retry_timeouts)
        [outcome] = await sink.deliver([Delivery(Push("task", 1, "somebody"), Level.HIGH, url)])
        await sink.close()
        return outcome


def test_each_row_has_a_case_and_each_case_a_row():
    assert documented(KIND).keys() == CASES.keys()


@pytest.mark.parametrize("answer", CASES)
async def test_an_answer_means_what_its_row_says_and_nothing_for_the_sink(answer, transport):
    expected = documented(KIND)[answer]
    for reaction in CASES[answer]:
        outcome = await outcome_of(reaction, transport, retry_timeouts="`retry_timeouts`" in answer)
        assert in_words(outcome) == expected, reaction
        assert sign_of(outcome) in (Sign.SUCCESS, Sign.OWN, Sign.ELSEWHERE)
