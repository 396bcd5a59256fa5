"""Each answer of a push service, from an emulator, means what docs/sinks-providers.md says."""

import socket

import pytest
from h2.errors import ErrorCodes

from pushlane.core.ports import Delivery
from pushlane.core.push import Push
from pushlane.core.task import Level
from pushlane.dispatcher.sinks.webpush import WebPushOptions
from pushlane.util import url_guard
from tests.emulators import webpush
from tests.emulators.http2_server import Answer, GoAway, Reset, Silence
from tests.emulators.webpush import WebPushEmulator
from tests.emulators.webpush_browser import Browser
from tests.provider_answers import documented, in_words

TIMEOUT_S = 60.0
HANG_S = 0.5

HELD = "retried (not counted); the sink is held"
RESTS = "retried (not counted); the sink rests"
ATTEMPT = "retried (counts as an attempt)"
MAYBE_DEAD = "dead; nearly all so, and the sink rests"
GONE = "dead, and so is its address"

OTHER_KEY = [
    Answer(403, webpush.OTHER_KEY.encode()),
    Answer(401, b'{"code":401,"errno":109,"message":"VAPID public key mismatch"}'),
    Answer(400, b'{"reason":"VapidPkHashMismatch"}'),
]
ANSWERS = [
    ("200, 201, 202", [Answer(200), Answer(201), Answer(202)], "delivered"),
    ("404", [Answer(404)], GONE),
    ("410", [Answer(410)], GONE),
    ("401", [Answer(401)], HELD),
    ("403", [Answer(403)], HELD),
    ("the same, for a key that is not the subscription's", OTHER_KEY, HELD),
    ("406", [Answer(406)], RESTS),
    ("429", [Answer(429)], RESTS),
    ("503", [Answer(503)], RESTS),
    ("the stream is refused", [Reset(ErrorCodes.REFUSED_STREAM)], RESTS),
    (
        "408, 425, 500, 502, 504, any other 5xx",
        [Answer(code) for code in (408, 425, 500, 502, 504, 507)],
        ATTEMPT,
    ),
    ("a connection that broke", [Reset(ErrorCodes.CANCEL), GoAway(ErrorCodes.NO_ERROR)], ATTEMPT),
    ("413", [Answer(413)], "dead"),
    (
        "3xx, 400, any other 4xx",
        [Answer(code) for code in (301, 307, 400, 405, 418)],
        MAYBE_DEAD,
    ),
]
OF_OTHER_KEY = "the same, once the push service has taken a push with our key"
UNANSWERED = {
    "no connection": RESTS,
    "no answer in time": MAYBE_DEAD,
    "no answer in time, with `retry_timeouts`": ATTEMPT,
    "none: the endpoint belongs to no service in `hosts`": "dead",
    "none: the endpoint leads to an address that is not public": HELD,
    "none: the host of the endpoint is not found": ATTEMPT,
    "none: the host of the endpoint cannot be resolved now": RESTS,
    "none: the endpoint is plain HTTP, or at another port": "dead",
    "none: the subscription cannot be used": "dead",
    "none: over 3,993 bytes": "dead",
}


@pytest.fixture(params=["pyreqwest"])
def http2_transport() -> dict[str, str]:
    """Hosts that rows name are posted to by it alone."""
    return {}


def sink_to(emulator, timeout_s=TIMEOUT_S, retry_timeouts=False, **options):
    told = {
        "vapid_key": emulator.vapid_pem,
        "subject": "mailto:push@example.com",
        "hosts": ("127.0.0.1",),
        "allow": ("127.0.0.1",),
        "only_http2": True,
        **options,
    }
    return WebPushOptions(**told).open(4, timeout_s, retry_timeouts)


async def words_of(emulator, address="", title="Hi", **options):
    """What becomes of one push, in the words of the table."""
    sink = sink_to(emulator, **options)
    try:
        push = Push("task", 1, "somebody", title)
        [outcome] = await sink.deliver(
            [Delivery(push, Level.HIGH, address or emulator.subscriptions[0])]
        )
        return in_words(outcome)
    finally:
        await sink.close()


def test_the_page_has_these_answers_and_no_others():
    told = {name: becomes for name, _, becomes in ANSWERS}

    assert documented("webpush") == told | UNANSWERED | {OF_OTHER_KEY: "dead"}


@pytest.mark.parametrize(("name", "reactions", "becomes"), ANSWERS, ids=[one[0] for one in ANSWERS])
async def test_an_answer(name, reactions, becomes, http2_transport):
    emulator = WebPushEmulator()
    async with emulator.running():
        for reaction in reactions:
            emulator.always = reaction
            assert await words_of(emulator, **http2_transport) == becomes


async def test_a_subscription_of_another_key_where_ours_is_good(http2_transport):
    emulator = WebPushEmulator()
    async with emulator.running():
        sink = sink_to(emulator, **http2_transport)
        for reaction, becomes in ((None, "delivered"), *((one, "dead") for one in OTHER_KEY)):
            emulator.always = reaction
            push = Push("task", 1, "somebody")
            [outcome] = await sink.deliver([Delivery(push, Level.HIGH, emulator.subscriptions[0])])
            assert in_words(outcome) == becomes
        await sink.close()


async def test_no_connection(http2_transport):
    emulator = WebPushEmulator()
    async with emulator.running():
        pass

    assert await words_of(emulator, **http2_transport) == UNANSWERED["no connection"]


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (socket.EAI_NONAME, "none: the host of the endpoint is not found"),
        (socket.EAI_AGAIN, "none: the host of the endpoint cannot be resolved now"),
    ],
    ids=["unknown", "no answer"],
)
async def test_a_host_without_an_address(monkeypatch, code, name):
    async def resolve(host):
        raise socket.gaierror(code, "no address")

    monkeypatch.setattr(url_guard, "resolve_host", resolve)
    emulator, address = WebPushEmulator(), Browser().subscription("https://push.example.com")

    words = await words_of(emulator, address, hosts=("push.example.com",))

    assert words == UNANSWERED[name]


@pytest.mark.parametrize(
    ("retry_timeouts", "name"),
    [(False, "no answer in time"), (True, "no answer in time, with `retry_timeouts`")],
)
async def test_no_answer_in_time(retry_timeouts, name, http2_transport):
    emulator = WebPushEmulator()
    emulator.always = Silence()
    async with emulator.running():
        words = await words_of(
            emulator, timeout_s=HANG_S, retry_timeouts=retry_timeouts, **http2_transport
        )

    assert words == UNANSWERED[name]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("none: the endpoint belongs to no service in `hosts`", {"hosts": ("push.example.com",)}),
        (
            "none: the endpoint leads to an address that is not public",
            {"allow": (), "address": Browser().subscription("https://127.0.0.1")},
        ),
        ("none: the endpoint is plain HTTP, or at another port", {"allow": ()}),
        ("none: the subscription cannot be used", {"address": "device-token"}),
        ("none: over 3,993 bytes", {"title": "x" * 4_000}),
    ],
    ids=["other service", "not public", "plain HTTP", "subscription", "size"],
)
async def test_what_is_not_sent(name, told):
    emulator = WebPushEmulator()
    async with emulator.running():
        assert await words_of(emulator, **told) == UNANSWERED[name]

    assert emulator.server.requests == []
