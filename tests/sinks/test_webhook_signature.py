"""Signed requests, read by the reference library of Standard Webhooks."""

import base64
import hashlib
import hmac

import pytest

from pushlane.core.errors import BadInput
from pushlane.core.ports import Delivery
from pushlane.core.push import Outcome, Push
from pushlane.core.task import Level
from pushlane.dispatcher.sinks import sink_options
from pushlane.dispatcher.sinks.posting import Signer
from pushlane.dispatcher.sinks.webhook import WebhookOptions, WebhookSink
from pushlane.settings.sinks import SinkSettings
from tests.emulators.http1_server import Http1Server
from tests.emulators.http2_server import Answer
from tests.emulators.webhook import Receiver, is_signed, new_secret

OLD, NEW = (f"whsec_{base64.b64encode(each * 31).decode()}" for each in (b"o", b"n"))
REFUSED = Outcome.refused("HTTP 401: check its credentials")
BYTES_24 = base64.b64encode(b"x" * 24).decode()


async def sent(receiver, *pushes, now=None, **given):
    """The outcomes, and the requests that the receiver took."""
    async with Http1Server(receiver).running() as server:
        options = WebhookOptions(url=f"{server.url}/push", **given)
        clock = {} if now is None else {"now": now}
        sink = WebhookSink(options, 1, options.timeouts(60, False), **clock)
        outcomes = [
            (await sink.deliver([Delivery(push, Level.HIGH, push.recipient)]))[0]
            for push in pushes or [Push("task", 7, "somebody", "Title", "Body é")]
        ]
        await sink.close()
        return outcomes, server.requests


@pytest.mark.parametrize("known", [OLD, NEW])
async def test_with_two_keys_a_receiver_that_knows_either_takes_the_push(known):
    outcomes, [request] = await sent(Receiver(secret=known), secrets=[NEW, OLD])

    assert outcomes == [Outcome.delivered()]
    assert len(request.headers["webhook-signature"].split(" ")) == 2


async def test_one_that_knows_another_key_refuses_it():
    outcomes, _ = await sent(Receiver(secret=new_secret()), secrets=[NEW, OLD])
    assert outcomes == [REFUSED]


@pytest.mark.parametrize("given", [NEW, [NEW], f"{NEW}\n", NEW.rstrip("=")])
async def test_one_key_is_one_signature(given):
    outcomes, [request] = await sent(Receiver(secret=NEW), secrets=given)

    assert outcomes == [Outcome.delivered()]
    assert " " not in request.headers["webhook-signature"]


async def test_without_keys_nothing_is_signed():
    _, [request] = await sent(Receiver())
    assert not [name for name in request.headers if name.startswith("webhook-")]


async def test_the_id_is_the_push_id_at_every_attempt_and_the_time_that_of_the_attempt():
    times = iter([1_000.9, 1_000.9, 2_000.0, 2_000.0])
    first, again = Push("task", 7, "somebody"), Push("task", 7, "somebody", attempt=2)

    _, requests = await sent(Receiver(), first, again, secrets=NEW, now=lambda: next(times))

    assert [one.headers["webhook-id"] for one in requests] == ["task-7", "task-7"]
    assert [one.headers["webhook-timestamp"] for one in requests] == ["1000", "2000"]


async def test_what_was_changed_on_the_way_is_not_taken():
    _, [request] = await sent(Receiver(), secrets=NEW)
    assert is_signed(request, NEW)

    request.body = request.body.replace(b"Title", b"Other")

    assert not is_signed(request, NEW)


async def test_a_refusal_while_our_clock_is_off_says_so():
    receiver = Receiver(secret=NEW)
    ahead_s = 4_000_000_000.0
    refused = {"Date": "Wed, 02 Oct 2096 06:59:00 GMT"}  # 7 minutes and 40 s before

    def with_date(request):
        reaction = receiver(request)
        assert isinstance(reaction, Answer)
        reaction.headers.update(refused)
        return reaction

    [outcome], _ = await sent(with_date, secrets=NEW, now=lambda: ahead_s)

    assert outcome.refuses_us
    assert outcome.reason == (
        "HTTP 401: check its credentials; our clock is 8 min ahead of the provider's"
    )


def test_the_signature_is_over_the_id_the_time_and_the_body():
    key = b"k" * 32
    headers = Signer("whsec_" + base64.b64encode(key).decode()).headers("id", b"{}", 7.0)
    expected = base64.b64encode(hmac.new(key, b"id.7.{}", hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (["hunter2hunter2"], "key 1 of secrets does not begin with whsec_"),
        ([NEW, "whsec_%%%"], "key 2 of secrets is not base64 after whsec_"),
        (["whsec_aGk="], "key 1 of secrets has 2 bytes; it has to have 24 to 64"),
        (["whsec_" + "A" * 88], "key 1 of secrets has 66 bytes"),
        (["whsec_"], "has 0 bytes"),
        (["whsec_é"], "is not base64"),
        (["whsk_" + BYTES_24], "key 1 of secrets is one of a key pair"),
        ([NEW, OLD, BYTES_24], "secrets has 3 keys; give one, or two"),
        ([NEW, NEW], "both keys of secrets are the same"),
        (f"{NEW} oops", "key 2 of secrets does not begin with whsec_"),
    ],
)
def test_a_key_that_cannot_be_is_refused_and_not_shown(keys, told):
    options = sink_options("webhook", {"url": "http://localhost/", "secrets": keys}, "the sink")

    with pytest.raises(BadInput, match=told) as caught:
        options.open(1, 30.0, False)

    for key in keys.split() if isinstance(keys, str) else keys:
        assert key.removeprefix("whsec_") == "" or key not in str(caught.value)


@pytest.mark.parametrize("length", [24, 64])
def test_a_key_of_24_to_64_bytes_is_one(length):
    Signer("whsec_" + base64.b64encode(b"x" * length).decode())


def test_a_file_may_hold_both_keys(tmp_path):
    path = tmp_path / "secrets"
    path.write_text(f"{NEW}\n{OLD}\n")
    settings = SinkSettings(kind="webhook", options={"secrets_file": str(path)})
    assert isinstance(settings.resolved("hook")["secrets"], str)
    signer = Signer(settings.resolved("hook")["secrets"])
    assert len(signer.headers("id", b"", 0.0)["webhook-signature"].split(" ")) == 2


def test_keys_of_a_wrong_type_are_refused():
    with pytest.raises(BadInput, match="secrets is a whole number; give a text"):
        sink_options("webhook", {"url": "http://localhost/", "secrets": 7}, "the sink")


def test_sinks_show_masks_the_keys():
    settings = SinkSettings(kind="webhook", options={"secrets": [NEW], "connect_timeout_s": 2})
    assert settings.shown_options() == {"secrets": "***", "connect_timeout_s": 2}
