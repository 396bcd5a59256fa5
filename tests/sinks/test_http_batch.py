"""The sink of batches against a server: what it sends, and how results find their pushes."""

import asyncio
import json
from contextlib import suppress

import pytest

from pushlane.core.errors import BadInput
from pushlane.core.ports import Delivery
from pushlane.core.push import Arrival, Kind, Outcome, Push, Scope
from pushlane.core.task import Level
from pushlane.dispatcher.sinks import sink_options
from pushlane.dispatcher.sinks.http_batch import MAX_REQUEST_BYTES
from pushlane.dispatcher.sinks.http_client import MAX_RETRY_AFTER_S
from tests.emulators.http1_server import Http1Server
from tests.emulators.http2_server import Answer
from tests.emulators.http_batch import answering
from tests.emulators.webhook import Receiver, new_secret
from tests.web_server import Server

RECIPIENT = "somebody@example.com"
DELIVERED = Outcome.delivered()


def deliveries(count=1, payload=None, **fields):
    pushes = [Push("task", seq, RECIPIENT, **fields) for seq in range(1, count + 1)]
    return [Delivery(push, Level.HIGH, "token-1", payload) for push in pushes]


async def deliver(server, *batches, timeout_s=60.0, **given):
    """The outcomes of these batches by one sink."""
    options = sink_options("http", {"url": server.url, **given}, "the sink")
    sink = options.open(50, timeout_s, False)
    try:
        return [await sink.deliver(batch) for batch in batches]
    finally:
        await sink.close()


async def sent(answer, *batches, **given):
    """The outcomes, and the requests."""
    async with Http1Server(answer).running() as server:
        return await deliver(server, *batches, **given), server.requests


async def told(*results, of=1):
    """The outcomes of one batch that is answered so."""
    body = json.dumps({"results": results}).encode()
    [outcomes], _ = await sent(lambda request: Answer(200, body), deliveries(of))
    return outcomes


def result(seq=1, status="delivered", **more):
    return {"push_id": f"task-{seq}", "status": status, **more}


async def test_one_request_has_the_messages_that_a_webhook_would_get():
    [outcomes], [request] = await sent(answering(), deliveries(2, title="Hi", trace_id="order 7"))

    assert outcomes == [DELIVERED] * 2
    first, second = json.loads(request.body)["messages"]
    assert (first["push_id"], second["push_id"]) == ("task-1", "task-2")
    assert first == {
        "push_id": "task-1",
        "task_id": "task",
        "seq": 1,
        "attempt": 1,
        "level": "high",
        "recipient": RECIPIENT,
        "title": "Hi",
        "body": "",
        "data": None,
        "address": "token-1",
        "trace_id": "order 7",
    }


async def test_a_payload_stands_beside_its_push_id():
    _, [request] = await sent(answering(), deliveries(payload={"to": "x"}))
    messages = json.loads(request.body)["messages"]
    assert messages == [{"push_id": "task-1", "payload": {"to": "x"}}]


@pytest.mark.parametrize("payload", [None, {"to": "x"}])
async def test_a_message_has_its_trace(payload):
    traceparent, own = (f"00-{'a' * 32}-{span * 16}-01" for span in "bc")
    given = deliveries(1, payload, trace_id=traceparent, tracestate="shop=1")
    given[0].traceparent = own

    _, [request] = await sent(answering(), given)

    [message] = json.loads(request.body)["messages"]
    told = [message[name] for name in ("trace_id", "traceparent", "tracestate")]
    assert told == [traceparent, own, "shop=1"]
    assert message.get("payload") == payload


async def test_results_are_matched_by_push_id_in_any_order():
    results = [result(3, "dead"), result(1), result(2, "retry", after_s=5)]
    first, second, third = await told(*results, of=3)
    assert (first.kind, second.kind, third.kind) == (Kind.DELIVERED, Kind.RETRY, Kind.DEAD)
    assert second.after_s == 5.0


async def test_a_message_without_a_result_goes_again_and_the_others_have_theirs():
    outcomes = await told(result(2), result(9, "dead"), of=3)
    assert [one.kind for one in outcomes] == [Kind.RETRY, Kind.DELIVERED, Kind.RETRY]
    assert {outcomes[0].arrival, outcomes[2].arrival} == {Arrival.UNKNOWN}


async def test_of_two_results_of_a_push_the_first_counts():
    assert await told(result(1), result(1, "dead")) == [DELIVERED]


async def test_a_throttled_push_lets_its_address_rest_alone():
    [outcome] = await told(result(1, "throttled", after_s=9))
    assert (outcome.scope, outcome.after_s) == (Scope.RECIPIENT, 9.0)


@pytest.mark.parametrize(
    ("given", "after_s"),
    [
        (0, 0.0),
        (1.5, 1.5),
        (10**400, MAX_RETRY_AFTER_S),
        (-1, None),
        (True, None),
        ("7", None),
        ([7], None),
    ],
)
async def test_a_wait_is_seconds_within_an_hour(given, after_s):
    [outcome] = await told(result(1, "retry", after_s=given))
    assert outcome.after_s == after_s


@pytest.mark.parametrize("code", ["quota_exceeded", "no-such-user", "e1042", "a" * 40])
async def test_a_reason_is_a_short_code(code):
    [outcome] = await told(result(1, "dead", reason=code))
    assert outcome.reason == f"the receiver cannot deliver it: {code}"


@pytest.mark.parametrize(
    "reason",
    [
        "no device of somebody",
        RECIPIENT,
        "somebody",
        "token-1",
        "441234567",
        "tel-441234567",
        "a" * 41,
        "Quota",
        "",
        7,
        {"a": 1},
    ],
)
async def test_of_any_other_reason_nothing_is_kept(reason):
    [outcome] = await told(result(1, "dead", reason=reason))
    assert outcome.reason == "the receiver cannot deliver it"


async def test_no_more_than_32_codes_are_kept_apart():
    codes = iter(f"code-{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(40))
    dead = answering(lambda message: {**result(message["seq"], "dead"), "reason": next(codes)})

    [outcomes], _ = await sent(dead, deliveries(40))

    assert len({outcome.reason for outcome in outcomes}) == 33  # and that without a code


async def test_the_key_is_that_of_the_pushes_in_the_request():
    batches = deliveries(2), deliveries(2), deliveries(3)
    _, requests = await sent(answering(), *batches)
    first, again, other = (request.headers["idempotency-key"] for request in requests)
    assert first == again != other


async def test_a_batch_is_signed_as_a_webhook_is():
    secret = new_secret()
    receiver = Receiver("Bearer x", secret, answering())

    [outcomes], [request] = await sent(
        receiver, deliveries(2), authorization="Bearer x", secrets=[secret]
    )

    assert outcomes == [DELIVERED] * 2
    assert request.headers["webhook-id"] == request.headers["idempotency-key"]
    assert "." not in request.headers["webhook-id"]


async def test_wrong_keys_hold_the_sink():
    receiver = Receiver(secret=new_secret(), answer=answering())
    [outcomes], _ = await sent(receiver, deliveries(2), secrets=[new_secret()])
    assert outcomes == [Outcome.refused("HTTP 401: check its credentials")] * 2


async def test_what_is_too_large_for_a_request_goes_in_another_one():
    batch = deliveries(5, payload="x" * (MAX_REQUEST_BYTES // 2 - 100))

    [outcomes], requests = await sent(answering(), batch)

    assert outcomes == [DELIVERED] * 5
    assert max(len(request.body) for request in requests) < MAX_REQUEST_BYTES + 1000
    counts = [len(json.loads(request.body)["messages"]) for request in requests]
    assert sorted(counts) == [1, 2, 2]


@pytest.mark.parametrize("status", [400, 413, 422])
async def test_a_push_that_spoils_its_request_is_dead_alone(status):
    good = answering()
    spoilt = {3, 8}

    def answer(request):
        seqs = {one["seq"] for one in json.loads(request.body)["messages"]}
        return Answer(status) if seqs & spoilt else good(request)

    [outcomes], requests = await sent(answer, deliveries(10))

    assert [one.kind for one in outcomes] == [
        Kind.DEAD if seq in spoilt else Kind.DELIVERED for seq in range(1, 11)
    ]
    taken = [json.loads(one.body)["messages"] for one in requests if answer(one).status != status]
    assert sorted(one["seq"] for each in taken for one in each) == [1, 2, 4, 5, 6, 7, 9, 10]


async def test_a_request_that_is_refused_for_another_reason_goes_once():
    [outcomes], requests = await sent(lambda request: Answer(404), deliveries(10))

    assert {one.kind for one in outcomes} == {Kind.DEAD}
    assert len(requests) == 1


async def test_one_that_is_larger_than_a_request_goes_alone():
    batch = [*deliveries(1), *deliveries(1, payload="x" * MAX_REQUEST_BYTES), *deliveries(1)]
    _, requests = await sent(answering(), batch)
    assert len(requests) == 3


async def test_results_that_do_not_come_in_time_are_unknown():
    async def hang_in_body(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    async with Server(react=hang_in_body).running() as server:
        [outcomes] = await deliver(server, deliveries(2), timeout_s=1.0)
    reason = "timed out in the middle of the answer"
    assert outcomes == [Outcome(Kind.DEAD, reason, arrival=Arrival.UNKNOWN, is_silent=True)] * 2


async def test_results_that_break_off_are_unknown_and_a_refusal_that_does_is_none():
    async def breaks(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
        await writer.drain()

    async with Server(react=breaks).running() as server:
        [[outcome]] = await deliver(server, deliveries())
    assert (outcome.kind, outcome.arrival) == (Kind.RETRY, Arrival.UNKNOWN)

    async def refuses(writer):
        writer.write(b"HTTP/1.1 401 No\r\nContent-Length: 1000\r\n\r\n{")
        await writer.drain()

    async with Server(react=refuses).running() as server:
        [[outcome]] = await deliver(server, deliveries())
    assert outcome.refuses_us


async def test_an_endless_answer_is_not_read_to_its_end():
    async def endless(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        block = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        while not writer.is_closing():
            writer.write(block)
            await writer.drain()

    async with Server(react=endless).running() as server:
        [[outcome]] = await deliver(server, deliveries())
    assert outcome == Outcome.retry("the answer to a batch cannot be read", arrival=Arrival.UNKNOWN)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"batch_size": 0}, "batch_size is out of range; give a whole number from 1 to 1,000"),
        ({"batch_size": 1001}, "batch_size is out of range"),
        ({"batch_size": "9"}, "batch_size is a text"),
        ({"secrets": "whsec_x"}, "key 1 of secrets is not base64|key 1 of secrets has"),
        ({"url": "ftp://host/"}, "the receiver's URL is not one like https://"),
    ],
)
def test_an_option_that_cannot_be_is_refused(given, said):
    with pytest.raises(BadInput, match=said):
        sink_options("http", {"url": "http://h/", **given}, "the sink").open(1, 30.0, False)
