"""The gorush sink against its emulator: what it sends, and whose result is whose."""

import hashlib
import json

import pytest

from pushlane.core.errors import BadInput
from pushlane.core.ports import Delivery
from pushlane.core.push import Arrival, Outcome, Push, Scope
from pushlane.core.task import Level
from pushlane.dispatcher.sinks import sink_options
from tests.emulators.gorush import Gorush
from tests.emulators.http1_server import Http1Server
from tests.emulators.http2_server import Answer

DELIVERED = Outcome.delivered()
FAR_MS = 4_000_000_000_000
GONE_MS = 1_000_000_000_000
DAY_S = 86_400


def delivery(seq=1, token="token-1", level=Level.HIGH, payload=None, **fields):
    return Delivery(Push("task", seq, "somebody", **fields), level, token, payload)


async def sent(gorush, *deliveries, platform="ios", path="", **given):
    """The outcomes, and the requests."""
    async with Http1Server(gorush).running() as server:
        options = {"url": server.url + path, "platform": platform, **given}
        sink = sink_options("gorush", options, "the sink").open(50, 60.0, False)
        try:
            return await sink.deliver(deliveries), server.requests
        finally:
            await sink.close()


async def notification(one, **given):
    """What gorush got of one push."""
    [outcome], [request] = await sent(Gorush(), one, **given)
    assert outcome == DELIVERED
    [found] = json.loads(request.body)["notifications"]
    return found


async def test_what_gorush_gets_for_ios():
    one = delivery(title="Hi", body="é", data={"n": 1}, expires_at_ms=FAR_MS, collapse="order-7")
    assert await notification(one, topic="com.example.shop") == {
        "notif_id": "task-1",
        "platform": 1,
        "tokens": ["token-1"],
        "title": "Hi",
        "message": "é",
        "priority": "high",
        "topic": "com.example.shop",
        "data": {"n": 1},
        "expiration": FAR_MS // 1000,
        "collapse_id": "order-7",
    }


async def test_what_gorush_gets_for_android():
    one = delivery(level=Level.LOW, data={"n": 1}, expires_at_ms=FAR_MS, collapse="order-7")
    found = await notification(one, platform="android")
    assert (found["platform"], found["priority"], found["data"]) == (2, "normal", {"n": 1})
    assert found["android"] == {"ttl": f"{28 * DAY_S}s", "collapse_key": "order-7"}


async def test_what_gorush_gets_for_huawei():
    one = delivery(data={"n": 1}, expires_at_ms=FAR_MS, collapse="order-7")
    found = await notification(one, platform="huawei")
    assert (found["platform"], found["huawei_data"]) == (3, '{"n":1}')
    assert found["huawei_ttl"] == f"{15 * DAY_S}s"


async def test_what_has_run_out_is_not_kept_for_its_device():
    found = await notification(delivery(expires_at_ms=GONE_MS), platform="android")
    assert found["android"] == {"ttl": "0s"}


async def test_a_collapse_key_that_is_too_long_for_apns_is_hashed():
    found = await notification(delivery(collapse="é" * 33))
    assert found["collapse_id"] == hashlib.sha256(("é" * 33).encode()).hexdigest()
    assert len(found["collapse_id"]) == 64


async def test_a_payload_is_a_notification_of_gorushs():
    payload = {"alert": {"loc-key": "HI"}, "badge": 1}
    assert await notification(delivery(payload=payload), topic="com.example.shop") == {
        **payload,
        "topic": "com.example.shop",
        "notif_id": "task-1",
        "platform": 1,
        "tokens": ["token-1"],
    }


@pytest.mark.parametrize(("platform", "has_topic"), [("ios", True), ("android", False)])
async def test_a_payload_does_not_say_to_whom_it_goes(platform, has_topic):
    payload = {"To": "x", "TOKENS": ["x"], "condition": "x", "topic": "t", "notif_id": "x"}
    found = await notification(delivery(payload={**payload, "Platform": 9}), platform=platform)
    expected = {"notif_id", "platform", "tokens", *(["topic"] if has_topic else [])}
    assert found.keys() == expected
    assert (found["tokens"], found["notif_id"]) == (["token-1"], "task-1")


async def test_a_payload_that_is_no_table_is_dead_alone():
    gorush = Gorush()
    outcomes, _ = await sent(gorush, delivery(1, payload="text"), delivery(2), delivery(3))
    assert outcomes == [Outcome.dead("its payload for gorush is not a table"), *[DELIVERED] * 2]
    assert [one["notif_id"] for one in gorush.sent] == ["task-2", "task-3"]

    outcomes, requests = await sent(gorush, delivery(payload=[1]))
    assert (len(outcomes), requests) == (1, [])


async def test_each_push_has_the_result_of_its_own_token():
    outcomes, _ = await sent(
        Gorush(),
        delivery(1, "a"),
        delivery(2, "Unregistered:b"),
        delivery(3, "TooManyRequests:c"),
        delivery(4, "d"),
    )
    assert [one.scope for one in outcomes] == [None, Scope.RECIPIENT, Scope.RECIPIENT, None]
    assert outcomes[0] == outcomes[3] == DELIVERED
    assert outcomes[1] == Outcome.gone("gorush: Unregistered")


async def test_without_sync_what_gorush_took_is_delivered():
    outcomes, _ = await sent(Gorush(sync=False), delivery(1, "Unregistered:b"))
    assert outcomes == [DELIVERED]


async def test_nothing_of_an_unknown_error_is_kept():
    body = {"notif_id": "task-1", "error": "Post https://apns/3/device/f00: eof", "token": "f00"}
    answer = json.dumps({"counts": 1, "logs": [body]}).encode()
    [outcome], _ = await sent(lambda request: Answer(200, answer), delivery())
    assert outcome == Outcome.retry("gorush failed to send it", arrival=Arrival.UNKNOWN)


async def test_of_several_attempts_of_gorush_the_last_counts():
    logs = [{"notif_id": "task-1", "error": one} for one in ("InternalServerError", "Shutdown")]
    answer = json.dumps({"counts": 1, "logs": logs}).encode()
    [outcome], _ = await sent(lambda request: Answer(200, answer), delivery())
    assert outcome.reason == "gorush: Shutdown"


async def test_a_hundred_go_in_one_request_and_a_url_with_a_path_stays():
    deliveries = [delivery(seq) for seq in range(1, 101)]
    outcomes, requests = await sent(Gorush(), *deliveries, path="/")
    assert (len(requests), outcomes) == (1, [DELIVERED] * 100)

    _, [request] = await sent(lambda request: Answer(500), delivery(), path="/gorush/push")
    assert request.path == "/gorush/push"


async def test_a_proxy_that_refuses_our_credentials_holds_the_sink():
    gorush = Gorush(authorization="Bearer right")
    [outcome], _ = await sent(gorush, delivery(), authorization="Bearer wrong")
    assert outcome == Outcome.refused("HTTP 401: check its credentials")
    assert (await sent(gorush, delivery(), authorization="Bearer right"))[0] == [DELIVERED]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "needs the option platform"),
        ({"platform": "iOS"}, "platform is .*give one of android, huawei, ios"),
        ({"platform": "android", "topic": "news"}, "topic is for the platform ios; with android"),
        ({"platform": "ios", "url": "gorush:8088"}, "gorush's URL is not one like https://"),
        ({"platform": "ios", "batch_size": 0}, "batch_size is out of range"),
        ({"platform": "ios", "secrets": "x"}, "the kind gorush has no option 'secrets'"),
    ],
)
def test_an_option_that_cannot_be_is_refused(given, said):
    options = {"url": "http://gorush:8088", **given}
    with pytest.raises(BadInput, match=said):
        sink_options("gorush", options, "the sink").open(1, 30.0, False)
