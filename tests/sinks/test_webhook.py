"""The webhook sink against a real HTTP server on loopback: what it sends, and what answers mean."""

import asyncio
import json

import pytest

from pushlane.core.errors import BadInput
from pushlane.core.ports import Delivery
from pushlane.core.push import Arrival, Kind, Outcome, Push, Scope
from pushlane.core.task import Level
from pushlane.dispatcher.sinks import open_sink
from pushlane.dispatcher.sinks.http_client import MAX_RETRY_AFTER_S
from pushlane.dispatcher.sinks.webhook import WebhookOptions, outcome_of
from tests.web_server import Server

DEADLINE_S = 60
RECIPIENT = "somebody@example.com"


def push(seq=1, **fields):
    return Push("task", seq, RECIPIENT, "Title", "Body é", **fields)


async def deliver(server, pushes, *, timeout_s=DEADLINE_S, retry_timeouts=False, **options):
    """The outcomes of these pushes or deliveries, one after the other."""
    sink = WebhookOptions(url=server.url, **options).open(2, timeout_s, retry_timeouts)
    try:
        deliveries = [
            each if isinstance(each, Delivery) else Delivery(each, Level.HIGH) for each in pushes
        ]
        return [(await sink.deliver([each]))[0] for each in deliveries]
    finally:
        await sink.close()


async def outcomes_from(server, count=1, **options):
    async with server.running():
        return await deliver(server, [push(seq) for seq in range(1, count + 1)], **options)


async def outcome_from(server, **options):
    [outcome] = await outcomes_from(server, **options)
    return outcome


def answering(status, *headers):
    lines = [f"HTTP/1.1 {status} X", "Content-Length: 0", *headers, "", ""]
    return Server("\r\n".join(lines).encode())


async def test_the_body_holds_all_that_the_receiver_needs():
    server = Server()

    async with server.running():
        outcomes = await deliver(server, [push(7, data={"n": 1}, attempt=3)])

    assert outcomes == [Outcome.delivered()]
    assert json.loads(server.bodies[0]) == {
        "push_id": "task-7",
        "task_id": "task",
        "seq": 7,
        "attempt": 3,
        "level": "high",
        "recipient": RECIPIENT,
        "title": "Title",
        "body": "Body é",
        "data": {"n": 1},
    }


async def test_what_a_push_has_beyond_that_goes_along_too():
    server, there = Server(), push(expires_at_ms=4_000_000_000_000, collapse="order-7")

    async with server.running():
        await deliver(server, [Delivery(there, Level.HIGH, "token-1")])

    message = json.loads(server.bodies[0])
    assert (message["recipient"], message["address"]) == (RECIPIENT, "token-1")
    assert (message["expires_at_ms"], message["collapse"]) == (4_000_000_000_000, "order-7")


async def test_an_address_that_is_the_recipient_is_not_said_twice():
    server = Server()

    async with server.running():
        await deliver(server, [Delivery(push(), Level.HIGH, RECIPIENT)])

    assert "address" not in json.loads(server.bodies[0])


async def test_a_payload_is_posted_as_it_is():
    server, payload = Server(), {"to": "x", "n": [1, None]}

    async with server.running():
        await deliver(server, [Delivery(push(7), Level.HIGH, RECIPIENT, payload)])

    assert json.loads(server.bodies[0]) == payload
    assert "\r\nidempotency-key: task-7\r\n" in server.heads[0]


async def test_the_idempotency_key_is_the_push_id_and_the_content_is_json():
    server = Server()
    await outcome_from(server)
    head = server.heads[0]
    assert head.startswith("post /push http/1.1")
    assert "\r\nidempotency-key: task-1\r\n" in head
    assert "\r\ncontent-type: application/json\r\n" in head


@pytest.mark.parametrize(
    ("trace_id", "name"),
    [(f"00-{'a' * 32}-{'b' * 16}-01", "traceparent"), ("order 7", "x-trace-id")],
)
async def test_a_trace_id_goes_along_as_a_header(trace_id, name):
    server = Server()

    async with server.running():
        await deliver(server, [push(trace_id=trace_id)])

    assert f"\r\n{name}: {trace_id}\r\n" in server.heads[0]


@pytest.mark.parametrize("trace_id", ["", "order 7", f"00-{'a' * 32}-{'b' * 16}-01"])
async def test_a_traced_push_says_where_its_receiver_goes_on(trace_id):
    server, own = Server(), f"00-{'a' * 32}-{'c' * 16}-01"

    async with server.running():
        await deliver(server, [Delivery(push(trace_id=trace_id), Level.HIGH, traceparent=own)])

    [head] = server.heads
    assert [line for line in head.split("\r\n") if "trace" in line] == [
        f"traceparent: {own}",
        *(["x-trace-id: order 7"] if trace_id == "order 7" else []),
    ]


@pytest.mark.parametrize(
    ("trace_id", "given", "told"),
    [
        (f"00-{'a' * 32}-{'b' * 16}-01", "shop=1, b=2", ["tracestate: shop=1,b=2"]),
        (f"00-{'a' * 32}-{'b' * 16}-01", "shop=1\r\nX-Other: 2", []),
        ("order 7", "shop=1", []),
    ],
)
async def test_a_tracestate_goes_along_beside_a_traceparent(trace_id, given, told):
    server, own = Server(), f"00-{'a' * 32}-{'c' * 16}-01"
    there = push(trace_id=trace_id, tracestate=given)

    async with server.running():
        await deliver(server, [there, Delivery(there, Level.HIGH, traceparent=own)])

    for head in server.heads:
        lines = head.split("\r\n")
        assert [one for one in lines if one.startswith(("tracestate", "x-other"))] == told


async def test_a_connection_is_used_again():
    server = Server()
    assert await outcomes_from(server, 3) == [Outcome.delivered()] * 3
    assert server.connections == 1


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_every_2xx_is_delivered(status):
    assert await outcome_from(answering(status)) == Outcome.delivered()


@pytest.mark.parametrize("status", [408, 500, 502, 504, 599])
async def test_what_may_pass_is_retried_and_may_be_the_fault_of_the_push(status):
    outcome = await outcome_from(answering(status))
    assert outcome == Outcome.retry(f"HTTP {status}")
    assert outcome.scope is None


@pytest.mark.parametrize(("status", "arrival"), [(429, "refused"), (503, "failed")])
async def test_a_webhook_that_is_too_busy_is_no_fault_of_the_push(status, arrival):
    outcome = Outcome.throttled(f"HTTP {status}", arrival=Arrival(arrival))
    assert await outcome_from(answering(status)) == outcome
    assert outcome.scope is Scope.SINK


async def test_what_is_too_early_cannot_have_arrived():
    outcome = Outcome.retry("HTTP 425", arrival=Arrival.REFUSED)
    assert await outcome_from(answering(425)) == outcome


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refusal_of_our_credentials_holds_the_sink_and_not_the_task(status):
    outcome = await outcome_from(answering(status))
    assert outcome.refuses_us
    assert not outcome.pause_task
    assert f"HTTP {status}" in outcome.reason


@pytest.mark.parametrize("status", [400, 404, 413, 422])
async def test_any_other_4xx_is_dead_and_may_be_said_by_a_broken_webhook(status):
    assert await outcome_from(answering(status)) == Outcome.dead(f"HTTP {status}", scope=None)


async def test_410_is_dead_and_about_the_push_alone():
    assert await outcome_from(answering(410)) == Outcome.dead("HTTP 410", scope=Scope.PUSH)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_dead_and_not_followed(status):
    server = answering(status, "Location: /elsewhere")
    outcome = await outcome_from(server)
    assert (outcome.kind, outcome.scope) == (Kind.DEAD, None)
    assert "redirects are not followed" in outcome.reason
    assert len(server.heads) == 1


async def test_retry_after_travels_from_the_header_to_the_outcome():
    outcome = await outcome_from(answering(429, "Retry-After: 7"))
    assert (outcome.reason, outcome.after_s) == ("HTTP 429", 7.0)


NOW_S = 1_000_000_000.0  # Sun, 09 Sep 2001 01:46:40 GMT


@pytest.mark.parametrize(
    ("header", "after_s"),
    [
        ("0", 0.0),
        (" 120 ", 120.0),
        ("Sun, 09 Sep 2001 01:47:40 GMT", 60.0),
        ("Sun, 09 Sep 2001 01:40:00 GMT", 0.0),
        ("99999999999999999999", MAX_RETRY_AFTER_S),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_RETRY_AFTER_S),
        ("-5", None),
        ("soon", None),
        ("", None),
    ],
)
def test_retry_after_is_seconds_or_a_date_within_an_hour(header, after_s):
    assert outcome_of(503, header, NOW_S).after_s == after_s


def no_connection(why: str) -> Outcome:
    return Outcome.throttled(f"no connection to the webhook: {why}", arrival=Arrival.REFUSED)


async def test_a_refused_connection_is_about_the_sink_and_nothing_can_have_arrived():
    server = Server()
    async with server.running():
        pass
    assert await deliver(server, [push()]) == [no_connection("nothing listens there")]


async def test_a_name_that_no_server_knows_is_about_the_sink():
    server = Server()
    server.url = "http://no-such-host.invalid/push"
    assert await deliver(server, [push()]) == [no_connection("its host name is not known")]


async def test_a_reset_connection_is_retried_and_the_reason_names_no_recipient():
    async def reset(writer):
        writer.transport.abort()

    outcome = await outcome_from(Server(react=reset))
    assert outcome.kind is Kind.RETRY
    assert "connection broke" in outcome.reason
    assert outcome.arrival is Arrival.UNKNOWN
    assert RECIPIENT not in outcome.reason


async def test_a_connection_is_used_again_when_the_body_comes_late():
    async def late_body(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
        await writer.drain()
        writer.write(b"ok")
        await writer.drain()

    server = Server(react=late_body, keep=True)
    assert await outcomes_from(server, 3) == [Outcome.delivered()] * 3
    assert server.connections == 1


async def test_an_endless_answer_is_not_read_to_its_end():
    async def endless(writer):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        block = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        while not writer.is_closing():
            writer.write(block)
            await writer.drain()

    assert await outcome_from(Server(react=endless)) == Outcome.delivered()


@pytest.mark.parametrize(
    "spec",
    ["webhook:ftp://secret.example.com/token", "webhook:/path", "webhook:http://", "http://[bad"],
)
def test_a_url_that_cannot_be_posted_to_is_refused_without_being_shown(spec):
    with pytest.raises(BadInput, match="is not one like https://") as caught:
        open_sink(spec, slots=1, timeout_s=1.0)
    assert "secret" not in str(caught.value)


async def test_a_bare_url_is_a_webhook():
    sink = open_sink("http://127.0.0.1:9/push", slots=1, timeout_s=1.0)
    await sink.close()
    assert sink.name == "webhook"


async def posted(sink, push, token="token"):
    """What is called with the outcome of a push that is posted; None when it does not go."""
    heard = asyncio.get_running_loop().create_future()
    went = sink.post(Delivery(push, Level.HIGH), lambda *told: heard.set_result(told), token)
    assert not heard.done()
    return await heard if went else None


@pytest.mark.parametrize(("status", "reason"), [(204, ""), (404, "HTTP 404"), (503, "HTTP 503")])
async def test_a_push_is_posted_once_a_connection_stands_and_means_the_same(status, reason):
    server = answering(status)
    async with server.running():
        sink = WebhookOptions(url=server.url).open(2, DEADLINE_S, False)
        try:
            assert sink.can_post
            assert await posted(sink, push(1)) is None
            [delivered] = await sink.deliver([Delivery(push(2), Level.HIGH)])
            token, outcome = await posted(sink, push(3))
        finally:
            await sink.close()

    assert (token, outcome) == ("token", delivered)
    assert outcome.reason == reason
    assert [json.loads(body)["seq"] for body in server.bodies] == [2, 3]


async def test_what_was_posted_and_is_closed_may_have_arrived():
    async def first_only(writer):
        if len(server.bodies) == 1:
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    server = Server(react=first_only, keep=True)
    async with server.running():
        sink = WebhookOptions(url=server.url).open(2, DEADLINE_S, False)
        await sink.deliver([Delivery(push(1), Level.HIGH)])
        under_way = asyncio.ensure_future(posted(sink, push(2)))
        await asyncio.sleep(0)
        await sink.close()

        _, outcome = await under_way

    assert (outcome.kind, outcome.arrival) == (Kind.RETRY, Arrival.UNKNOWN)
    assert outcome.reason == "the webhook's connection broke"


@pytest.mark.parametrize("options", [{"client": "pyreqwest"}, {"only_http2": True}])
async def test_what_pyreqwest_posts_is_delivered(options):
    """It says so beforehand: else each push would be written and signed twice."""
    sink = WebhookOptions(url="http://127.0.0.1:9/", **options).open(2, DEADLINE_S, False)
    assert not sink.can_post
    assert await posted(sink, push(1)) is None
    await sink.close()
