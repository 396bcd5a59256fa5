"""A webhook whose URL is the address of each push: what it sends, refuses, and what rests."""

import json

import pytest
from standardwebhooks import Webhook

from pushlane.core.errors import BadInput
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Kind, Outcome, Push, Scope
from pushlane.core.task import Level
from pushlane.dispatcher.failures import Sign, sign_of
from pushlane.dispatcher.sinks import sink_options
from pushlane.dispatcher.sinks.webhook import WebhookOptions
from pushlane.util import url_guard
from tests.provider_answers import TRANSPORTS
from tests.web_server import Server

SECRET = "whsec_" + "c2VjcmV0" * 4
ALLOWED = ("127.0.0.1",)


def to(url, seq=1, **fields):
    return Delivery(Push("task", seq, "somebody", "Title", **fields), Level.HIGH, url)


@pytest.fixture(params=TRANSPORTS)
def opened(request):
    """Opens the sink, with one transport after the other."""

    def opened(allow=ALLOWED, **options):
        given = WebhookOptions(to_address=True, allow=allow, **TRANSPORTS[request.param], **options)
        return given.open(10, 60.0, False)

    return opened


async def outcome_of(sink, delivery):
    [outcome] = await sink.deliver([delivery])
    return outcome


def answering(status, *headers):
    lines = [f"HTTP/1.1 {status} X", "Content-Length: 0", *headers, "", ""]
    return Server("\r\n".join(lines).encode())


async def test_each_push_goes_to_its_own_url_signed_and_under_its_id(opened):
    sink = opened(secrets=SECRET, headers={"X-Of": "us"})
    async with Server().running() as one, Server().running() as two:
        for seq, server in enumerate((one, two, one), 1):
            url = f"{server.url}?key={seq}"
            assert await outcome_of(sink, to(url, seq, trace_id="t")) is DELIVERED
        assert (len(one.bodies), len(two.bodies)) == (2, 1)
        assert one.heads[1].startswith("post /push?key=3 ")
        assert "\r\nidempotency-key: task-3\r\n" in one.heads[1]
        assert "\r\nx-of: us\r\n" in one.heads[1]
        assert "\r\nx-trace-id: t\r\n" in one.heads[1]
        headers = dict(line.split(": ", 1) for line in two.heads[0].split("\r\n")[1:] if line)
        assert json.loads(two.bodies[0])["seq"] == 2
        assert "webhook-signature" in headers
    await sink.close()


async def test_a_receivers_library_knows_the_signature(opened):
    sink = opened(secrets=SECRET)
    kept = []

    class Keeping(Server):
        async def _serve(self, reader, writer):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
            headers = {name.lower(): value for name, value in fields.items()}
            body = await reader.readexactly(int(headers["content-length"]))
            kept.append(Webhook(SECRET).verify(body, headers))
            writer.write(self.answer)
            writer.close()

    async with Keeping().running() as server:
        assert await outcome_of(sink, to(server.url)) is DELIVERED
    assert kept[0]["push_id"] == "task-1"
    await sink.close()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://127.0.0.1:{port}/secret", url_guard.OTHER_PORT),
        ("https://127.0.0.1/secret", url_guard.NOT_PUBLIC),
        ("http://localhost:{port}/secret", url_guard.NOT_HTTPS),
        ("http://169.254.169.254/secret", url_guard.NOT_HTTPS),
        ("https://secret:secret@example.com/", url_guard.HAS_USER),
        ("secret", url_guard.NOT_A_URL),
        ("", url_guard.NOT_A_URL),
    ],
)
async def test_a_url_that_must_not_be_asked_is_dead_without_a_connection(url, reason, opened):
    sink = opened(allow=())
    async with Server().running() as server:
        port = server.url.rpartition(":")[2].partition("/")[0]
        outcome = await outcome_of(sink, to(url.format(port=port)))
        assert outcome == Outcome.dead(reason)
        assert server.connections == 0
    await sink.close()


@pytest.mark.parametrize(
    ("status", "expected", "sign"),
    [
        (404, Outcome.dead("HTTP 404", scope=Scope.HOST), Sign.OWN),
        (410, Outcome.gone("HTTP 410"), Sign.OWN),
    ],
)
async def test_final_answers_say_nothing_of_the_sink(status, expected, sign, opened):
    sink = opened()
    async with answering(status).running() as server:
        outcome = await outcome_of(sink, to(server.url))
        assert outcome == expected
        assert sign_of(outcome) is sign
    await sink.close()


@pytest.mark.parametrize("status", [401, 403, 500, 502])
async def test_what_may_be_mended_costs_an_attempt_and_holds_nothing(status, opened):
    sink = opened()
    async with answering(status).running() as server:
        outcome = await outcome_of(sink, to(server.url))
    assert (outcome.kind, outcome.refuses_us, sign_of(outcome)) == (Kind.RETRY, False, Sign.OWN)
    await sink.close()


async def test_a_host_that_is_away_rests_while_others_are_asked(opened):
    sink = opened()
    async with Server().running() as well:
        gone = "http://127.0.0.1:9/push"
        for _ in range(3):
            outcome = await outcome_of(sink, to(gone))
            assert outcome == Outcome.throttled(
                "no connection to the host of its URL: nothing listens there", scope=Scope.HOST
            )
        rests = await outcome_of(sink, to(gone))
        assert (rests.reason, rests.scope) == ("its host takes no pushes now", Scope.HOST)
        assert sign_of(rests) is Sign.ELSEWHERE
        assert await outcome_of(sink, to(well.url)) is DELIVERED
    await sink.close()


async def test_a_wait_that_a_host_asks_for_is_its_own(opened):
    sink = opened()
    async with answering(503, "Retry-After: 30").running() as busy, Server().running() as well:
        first, second = [await outcome_of(sink, to(busy.url)) for _ in range(2)]
        assert first == Outcome.throttled("HTTP 503", 30.0, Scope.HOST, arrival=first.arrival)
        assert 0 < second.after_s <= 30.0
        assert busy.connections == 1
        assert await outcome_of(sink, to(well.url)) is DELIVERED
    await sink.close()


@pytest.mark.parametrize("status", [401, 429, 503])
async def test_headers_that_are_no_text_are_as_if_there_were_none(status, opened):
    head = f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n".encode()
    sink = opened()
    async with Server(head + b"Retry-After: \xff\r\nDate: \xff\r\n\r\n").running() as server:
        outcome = await outcome_of(sink, to(server.url))
    assert (outcome.kind, outcome.after_s) == (Kind.RETRY, None)
    await sink.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "needs the option url, or to_address = true"),
        ({"url": "https://a.example/", "to_address": True}, "url and to_address are both given"),
        ({"to_address": True, "authorization": "secret"}, "sign with secrets instead"),
        ({"url": "https://a.example/", "allow": ["b"]}, "allow and ports need to_address"),
        ({"url": "https://a.example/", "ports": [8443]}, "allow and ports need to_address"),
        ({"to_address": True, "allow": ["https://b/"]}, "is not a host: give names"),
        ({"to_address": True, "ports": [0]}, "ports is out of range; give a list of whole"),
        ({"to_address": True, "ports": 443}, "ports is a whole number; give a list of whole"),
        ({"to_address": True, "allow": "b"}, "allow is a text; give a list of texts"),
    ],
)
def test_options_that_cannot_be(options, words):
    with pytest.raises(BadInput, match=words) as refused:
        sink_options("webhook", options, "the sink").open(1, 9.0, False)
    assert "secret" not in str(refused.value).replace("secrets", "")
