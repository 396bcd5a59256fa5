"""FCM and APNs over HTTP/2 in the loop: pushes that are posted, and what is asked for again."""

import asyncio
import json
import sys

import pytest

pytest.importorskip("ngh2")

from pushlane.core.errors import BadInput
from pushlane.core.ports import Delivery
from pushlane.core.push import DELIVERED, Arrival, Kind, Push
from pushlane.core.task import Level
from pushlane.dispatcher.sinks import sink_options
from pushlane.dispatcher.sinks.apns import ApnsOptions, ApnsSink
from pushlane.dispatcher.sinks.http_client import Timeouts
from pushlane.dispatcher.transport.choice import OURS
from pushlane.dispatcher.transport.http2 import Http2Client
from tests.emulators.apns import KEY_ID, TEAM_ID, TOPIC, Apns, refused
from tests.emulators.fcm import FcmEmulator, fcm_error
from tests.emulators.http2_server import Silence

NOW_S = 735_000 * 2_400 + 1_800.0  # our token is half an hour old
FCM_ADDRESS = "dIsVQ2QVRT-TW7L6VfeAMh"
APNS_ADDRESS = "0d" * 32


def delivery(address, seq=1):
    return Delivery(Push("task", seq, "somebody", "Title", "Body"), Level.HIGH, address)


async def posted(sink, given):
    """What is called with the outcome of a push that is posted; None when it does not go."""
    heard = asyncio.get_running_loop().create_future()
    went = sink.post(given, lambda *told: heard.set_result(told), "token")
    assert not heard.done()
    return await heard if went else None


def fcm_sink(emulator, **options):
    credentials = json.dumps(emulator.tokens.service_account())
    given = {"credentials": credentials, "endpoint": emulator.url, "http2": "ngh2", **options}
    return sink_options("fcm", given, "sink app").open(10, 30.0, False)


def apns_sink(apns, url):
    given = {"key": apns.pem(), "key_id": KEY_ID, "team_id": TEAM_ID, "topic": TOPIC}
    options = ApnsOptions(**given, endpoint=url, http2="ngh2")
    return ApnsSink(options, 10, Timeouts(30.0), now=lambda: NOW_S)


async def test_fcm_posts_once_it_has_a_token_and_a_connection():
    async with FcmEmulator().running() as emulator:
        sink = fcm_sink(emulator)
        assert sink.can_post
        assert await posted(sink, delivery(FCM_ADDRESS)) is None
        assert await sink.deliver([delivery(FCM_ADDRESS, 2)]) == [DELIVERED]
        assert await posted(sink, delivery(FCM_ADDRESS, 3)) == ("token", DELIVERED)
        no_object = Delivery(Push("task", 4, "somebody"), Level.HIGH, FCM_ADDRESS, "text")
        assert await posted(sink, no_object) is None
        await sink.close()
    assert len(emulator.delivered) == 2


async def test_fcm_asks_again_with_another_token_for_a_push_that_was_posted():
    async with FcmEmulator().running() as emulator:
        sink = fcm_sink(emulator)
        assert await sink.deliver([delivery(FCM_ADDRESS)]) == [DELIVERED]
        emulator.tokens.good.clear()
        told = await asyncio.gather(*(posted(sink, delivery(FCM_ADDRESS, n)) for n in (2, 3)))
        assert told == [("token", DELIVERED)] * 2
        assert emulator.tokens.asked == 2

        emulator.tokens.good.clear()
        emulator.tokens.answers = [(400, {"error": "invalid_grant"})]
        _, outcome = await posted(sink, delivery(FCM_ADDRESS, 4))
        await sink.close()
    assert outcome.refuses_us
    assert len(emulator.delivered) == 3


async def test_a_push_that_is_asked_for_again_as_the_sink_is_closed_may_have_arrived():
    async with FcmEmulator().running() as emulator:
        sink = fcm_sink(emulator)
        assert await sink.deliver([delivery(FCM_ADDRESS)]) == [DELIVERED]
        emulator.tokens.good.clear()
        emulator.tokens.gate.clear()
        under_way = asyncio.ensure_future(posted(sink, delivery(FCM_ADDRESS, 2)))
        while not sink._asking:
            await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.05, emulator.tokens.gate.set)
        await sink.close()
        _, outcome = await under_way
    assert outcome.kind is Kind.RETRY


async def test_an_answer_that_another_token_does_not_help_means_what_it_does_otherwise():
    apns = Apns(now=lambda: NOW_S)
    async with apns.server.running() as server:
        sink = apns_sink(apns, server.url)
        assert await posted(sink, delivery(APNS_ADDRESS)) is None
        assert await sink.deliver([delivery(APNS_ADDRESS)]) == [DELIVERED]
        assert await posted(sink, delivery(APNS_ADDRESS, 2)) == ("token", DELIVERED)
        assert await posted(sink, delivery("no number", 2)) is None
        for status, code in [(403, "BadCertificate"), (429, "TooManyRequests"), (400, "BadTopic")]:
            apns.says = lambda request, status=status, code=code: refused(status, code)
            [delivered] = await sink.deliver([delivery(APNS_ADDRESS, 3)])
            assert await posted(sink, delivery(APNS_ADDRESS, 3)) == ("token", delivered)
            assert delivered.reason.startswith(code)
        apns.says = lambda request: Silence()
        under_way = asyncio.ensure_future(posted(sink, delivery(APNS_ADDRESS, 4)))
        await asyncio.sleep(0)
        await sink.close()
        _, outcome = await under_way
    assert (outcome.kind, outcome.arrival) == (Kind.RETRY, Arrival.UNKNOWN)
    assert outcome.reason == "APNs's connection broke"


async def test_apns_asks_again_with_another_token_where_ours_has_expired():
    late_s = 0.0
    apns = Apns(now=lambda: NOW_S + late_s)
    async with apns.server.running() as server:
        sink = apns_sink(apns, server.url)
        assert await sink.deliver([delivery(APNS_ADDRESS)]) == [DELIVERED]
        late_s = 35 * 60.0
        assert await posted(sink, delivery(APNS_ADDRESS, 2)) == ("token", DELIVERED)
        assert len(server.requests) == 3
        await sink.close()


async def test_an_outcome_that_raises_is_a_sink_that_raised(monkeypatch):
    async with FcmEmulator().running() as emulator:
        sink = fcm_sink(emulator)
        assert await sink.deliver([delivery(FCM_ADDRESS)]) == [DELIVERED]

        def failing(heard):
            raise KeyError("secret")

        monkeypatch.setattr(sink, "outcome", failing)
        for is_refused in (False, True):
            if is_refused:
                emulator.server.react = lambda request: fcm_error(401)
            _, outcome = await posted(sink, delivery(FCM_ADDRESS, 2))
            assert (outcome.reason, outcome.arrival) == ("sink raised KeyError", Arrival.UNKNOWN)
        await sink.close()


def test_what_posts_is_said(monkeypatch):
    account = FcmEmulator().tokens
    account.url = "http://127.0.0.1:9"
    given = {"credentials": json.dumps(account.service_account())}
    ours = sink_options("fcm", {**given, "http2": "ngh2"}, "sink app")
    assert ours.posted_by() == OURS
    assert sink_options("fcm", given, "it").posted_by() == "pyreqwest, as http2 is not set"
    assert isinstance(ours.open(1, 1.0, False)._transport, Http2Client)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    assert ours.posted_by() == "pyreqwest, as a proxy variable applies"
    assert not ours.open(1, 1.0, False).can_post


async def test_a_push_that_would_be_asked_for_again_is_answered_though_the_sink_closes():
    apns = Apns(now=lambda: NOW_S)
    async with apns.server.running() as server:
        sink = apns_sink(apns, server.url)
        await sink.deliver([delivery(APNS_ADDRESS)])
        apns.says = lambda request: refused(403, "BadCertificate")
        told, closing = [], asyncio.Event()
        ask_again = sink._heard

        def heard(asked, what):
            closing.set()  # so the sink is closed before the new task takes its first step
            ask_again(asked, what)

        sink._heard = heard
        assert sink.post(delivery(APNS_ADDRESS, 2), lambda *of: told.append(of), "token")
        await closing.wait()
        await sink.close()
        [(token, outcome)] = told
        assert (token, outcome.kind) == ("token", Kind.RETRY)


def test_without_the_extra_it_is_refused_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ngh2", None)
    monkeypatch.delitem(sys.modules, "pushlane.dispatcher.transport.http2")
    account = FcmEmulator().tokens
    account.url = "http://127.0.0.1:9"
    given = {"credentials": json.dumps(account.service_account()), "http2": "ngh2"}
    options = sink_options("fcm", given, "sink app")
    with pytest.raises(BadInput) as refusal:
        options.open(1, 1.0, False)
    assert str(refusal.value) == (
        'http2 = "ngh2" needs the package ngh2, of the extra `h2`: pip install '
        "'pushlane[h2]' (in a clone: pip install '.[h2]')"
    )


@pytest.mark.parametrize("kind", ["webpush", "webhook", "gorush"])
def test_other_kinds_refuse_it_and_say_why(kind):
    with pytest.raises(BadInput) as refusal:
        sink_options(kind, {"http2": "ngh2", "to_address": True}, "sink app")
    assert str(refusal.value) == (
        f"sink app: http2 is an option of fcm and apns only, not of the kind {kind}: it is "
        "experimental, and not for hosts that come from rows; leave it out"
    )


def test_a_value_that_is_none_of_them_is_refused():
    with pytest.raises(BadInput, match="http2"):
        sink_options("fcm", {"credentials": "{}", "http2": "h2"}, "sink app")
