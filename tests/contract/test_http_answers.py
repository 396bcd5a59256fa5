"""Each row of the table of what a batch's answers mean, by the sink against a server."""

import json

import pytest

from pushlane.core.ports import Delivery
from pushlane.core.push import Arrival, Push
from pushlane.core.task import Level
from pushlane.dispatcher.sinks.http_batch import HttpBatchOptions
from tests.contract.test_webhook_answers import CASES as WEBHOOK_CASES
from tests.contract.test_webhook_answers import HANG_S, LONG_S, NOBODY
from tests.emulators.http1_server import Http1Server
from tests.emulators.http2_server import Answer, Silence
from tests.provider_answers import documented, in_words


def results(*given):
    return Answer(200, json.dumps({"results": given}).encode())


def with_status(status, **more):
    return results(*({"push_id": f"task-{seq}", "status": status, **more} for seq in (1, 2)))


CASES = {
    "`delivered`": [with_status("delivered"), with_status("delivered", reason="x", more=[1])],
    "`retry`": [with_status("retry"), with_status("retry", after_s=3, reason="busy")],
    "`dead`": [with_status("dead", reason="blocked")],
    "`gone`": [with_status("gone")],
    "`throttled`": [with_status("throttled"), with_status("throttled", after_s=60)],
    "no result, or one whose status is none of these": [
        results(),
        with_status("perhaps"),
        with_status(None),
        with_status(["delivered"]),
        results({"push_id": "other-1", "status": "delivered"}),
        results({"status": "delivered"}, {"push_id": ["task-1"], "status": "delivered"}),
    ],
    "2xx with another body": [
        Answer(200),
        Answer(204),
        Answer(200, b"<html>OK</html>"),
        Answer(200, b'{"results":[{"push_id":"task-1","sta'),
        Answer(200, b'{"results":{"task-1":"delivered"}}'),
        Answer(200, b'{"results":["task-1"]}'),
        Answer(200, b"[]"),
        Answer(200, b"\xff\xfe"),
        Answer(200, b"[" * 50_000),
    ],
}


async def outcomes_of(reaction, transport, *, retry_timeouts=False):
    async with Http1Server(lambda request: reaction).running() as server:
        timeout_s = HANG_S if isinstance(reaction, Silence) else LONG_S
        url = "http://127.0.0.1:9" if reaction is NOBODY else server.url
        sink = HttpBatchOptions(url=url, **transport).open(10, timeout_s, retry_timeouts)
        pushes = [Push("task", seq, "somebody") for seq in (1, 2)]
        outcomes = await sink.deliver([Delivery(push, Level.HIGH) for push in pushes])
        await sink.close()
        return outcomes


def test_each_row_has_a_case_and_each_case_a_row():
    assert documented("http").keys() == CASES.keys()


@pytest.mark.parametrize("answer", CASES)
async def test_an_answer_means_what_its_row_says(answer, transport):
    expected = documented("http")[answer]
    for reaction in CASES[answer]:
        outcomes = await outcomes_of(reaction, transport)
        assert [in_words(outcome) for outcome in outcomes] == [expected] * 2, reaction


@pytest.mark.parametrize("answer", [each for each in WEBHOOK_CASES if each != "2xx"])
async def test_any_other_answer_is_about_all_pushes_as_a_webhooks_is_about_one(answer, transport):
    for reaction in WEBHOOK_CASES[answer]:
        outcomes = await outcomes_of(
            reaction, transport, retry_timeouts="`retry_timeouts`" in answer
        )
        words = [in_words(outcome) for outcome in outcomes]
        assert words == [documented("webhook")[answer]] * 2, reaction


@pytest.mark.parametrize("answer", ["no result, or one whose status is none of these"])
async def test_what_has_no_result_may_have_arrived(answer, transport):
    for reaction in [*CASES[answer], *CASES["2xx with another body"]]:
        arrivals = [outcome.arrival for outcome in await outcomes_of(reaction, transport)]
        assert arrivals == [Arrival.UNKNOWN] * 2, reaction
