"""Single pushes over HTTP: each is on its lane when it is answered, and a key is one push."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

import msgspec
import pytest

from pushlane import Settings
from pushlane.core.errors import Unreachable
from pushlane.core.task import State, Task, seal
from pushlane.model.names import submit_lease
from pushlane.model.streams import find_stream
from pushlane.producers import feed, feeds
from pushlane.producers.replay import retained_pushes
from pushlane.producers.stream_tasks import tasks_of
from tests.door.asking import Answer, Asking, asking

PUSH = {"recipient": "device-7", "title": "Paid"}
TRACEPARENT = f"00-{'a' * 32}-{'b' * 16}-01"


async def made(ask: Asking, name: str = "orders", **options: Any) -> None:
    answer = await ask("PUT", f"/v1/streams/{name}", {"level": "high", **options})
    assert answer.status == 200, answer.body


async def sent(ask: Asking, key: str, name: str = "orders", **more: Any) -> Answer:
    body = more.pop("body", PUSH)
    return await ask("PUT", f"/v1/streams/{name}/pushes/{key}", body, **more)


async def tasks(ask: Asking, name: str = "orders", app: str = "default") -> list[Task]:
    """The stream's tasks that were ever made, oldest first."""
    stream = await find_stream(ask.backend.documents, app, name)
    assert stream is not None
    return (await tasks_of(ask.backend, stream, tuple(State)))[::-1]


async def on_lane(ask: Asking, task: Task) -> list[tuple[int, str]]:
    """What lies on a task's lane: seqs and keys."""
    return [(push.seq, push.key) async for push in retained_pushes(ask.backend, task)]


async def test_a_push_is_on_its_lane_when_it_is_answered(settings: Settings) -> None:
    async with asking(settings) as ask:
        await made(ask)
        first = await sent(ask, "order-7")
        second = await sent(ask, "a/b")  # a key may have slashes
        [task] = await tasks(ask)

        assert (first.status, first.json) == (201, {"id": f"{task.id}-1"})
        assert (second.status, second.json) == (201, {"id": f"{task.id}-2"})
        assert (task.state, task.is_fed, task.total) == (State.RUNNING, True, None)
        assert await on_lane(ask, task) == [(1, "order-7"), (2, "a/b")]
        await ask.door.close()
        [sealed] = await tasks(ask)
        assert sealed.total == 2
        assert not await ask.backend.lease.is_held(submit_lease(task.id))


@pytest.mark.parametrize(
    ("header", "trace_id", "kept"),
    [(TRACEPARENT, "", TRACEPARENT), (TRACEPARENT, "order 7", "order 7"), ("00-none", "", "")],
)
async def test_a_push_is_in_the_trace_of_its_request(
    settings: Settings, header: str, trace_id: str, kept: str
) -> None:
    async with asking(settings) as ask:
        await made(ask)
        body = {**PUSH, "trace_id": trace_id}
        answer = await sent(ask, "order-7", body=body, headers={"traceparent": header})
        [task] = await tasks(ask)

        assert answer.status == 201
        assert [push.trace_id async for push in retained_pushes(ask.backend, task)] == [kept]


@pytest.mark.parametrize(
    ("traceparent", "body", "kept"),
    [
        (TRACEPARENT, {}, "a=1,b=2"),
        ("00-none", {}, ""),
        (TRACEPARENT, {"trace_id": "order 7"}, ""),
        (TRACEPARENT, {"trace_id": TRACEPARENT, "tracestate": "c=3"}, "c=3"),
    ],
)
async def test_a_push_has_the_tracestate_of_its_request(
    settings: Settings, traceparent: str, body: dict[str, str], kept: str
) -> None:
    async with asking(settings) as ask:
        await made(ask)
        headers = {"traceparent": traceparent, "tracestate": "a=1 , b=2"}
        answer = await sent(ask, "order-7", body={**PUSH, **body}, headers=headers)
        [task] = await tasks(ask)

        assert answer.status == 201
        assert [push.tracestate async for push in retained_pushes(ask.backend, task)] == [kept]


async def test_a_key_that_is_known_is_answered_with_its_push(settings: Settings) -> None:
    async with asking(settings) as ask:
        await made(ask)
        await made(ask, "others")
        answers = await asyncio.gather(*(sent(ask, "order-7") for _ in range(5)))
        again = await sent(ask, "order-7", body={"recipient": "device-8"})
        elsewhere = await sent(ask, "order-7", "others")  # keys are those of an app
        [task] = await tasks(ask)

        assert [one.status for one in answers].count(201) == 1
        assert {one.json["id"] for one in (*answers, again, elsewhere)} == {f"{task.id}-1"}
        assert (again.status, elsewhere.status) == (200, 200)
        assert await on_lane(ask, task) == [(1, "order-7")]
        assert await tasks(ask, "others") == []
        await ask.door.close()


async def test_pushes_that_come_at_once_are_published_together(settings: Settings) -> None:
    async with asking(settings) as ask:
        await made(ask)
        await sent(ask, "first")
        publish = ask.backend.broker.publish
        with mock.patch.object(ask.backend.broker, "publish", side_effect=publish) as published:
            answers = await asyncio.gather(*(sent(ask, f"k{n}") for n in range(300)))

        assert {one.status for one in answers} == {201}
        assert published.call_count < 30
        [task] = await tasks(ask)
        assert [seq for seq, _ in await on_lane(ask, task)] == [*range(1, 302)]
        await ask.door.close()


async def test_a_push_that_cannot_be_there_is_503_and_is_not_sent_twice(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "ANSWER_S", 0.05)
    async with asking(settings) as ask:
        await made(ask)
        await sent(ask, "first")
        away = Unreachable("the broker does not answer")
        publish, back = ask.backend.broker.publish, asyncio.Event()

        async def gone(*given: Any, **more: Any) -> None:
            if not back.is_set():
                raise away
            await publish(*given, **more)

        with mock.patch.object(ask.backend.broker, "publish", side_effect=gone):
            kept = await sent(ask, "order-7")
            refused = await sent(ask, "order-8")
            back.set()
            monkeypatch.setattr(feeds, "ANSWER_S", 60.0)
            repeated = await sent(ask, "order-7")
        later = await sent(ask, "order-8")
        [task] = await tasks(ask)

        assert (kept.status, refused.status) == (503, 503)
        assert kept.headers["retry-after"] == refused.headers["retry-after"] == "5"
        assert "send it again with the same key" in kept.json["detail"]
        assert "does not answer; the push was not taken" in refused.json["detail"]
        assert (repeated.status, repeated.json["id"]) == (200, f"{task.id}-2")
        assert (later.status, later.json["id"]) == (201, f"{task.id}-3")
        assert [key for _, key in await on_lane(ask, task)] == ["first", "order-7", "order-8"]
        await ask.door.close()


async def test_a_process_that_stops_while_the_broker_is_away_leaves_the_seal_to_the_leader(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "ANSWER_S", 60.0)
    async with asking(settings) as ask:
        await made(ask)
        await sent(ask, "first")
        away = Unreachable("the broker does not answer")
        with mock.patch.object(ask.backend.broker, "publish", side_effect=away):
            waiting = asyncio.create_task(sent(ask, "order-7"))
            await tried(ask)
            await ask.door.single.feeds.close(0.01)
            told = await waiting
        [task] = await tasks(ask)

        assert (told.status, task.total) == (503, None)
        assert "this process stops; send the push again" in told.json["detail"]


async def tried(ask: Asking) -> None:
    """Return once a publish has failed."""
    while not ask.door.single.feeds.trouble:
        await asyncio.sleep(0)


async def test_two_processes_feed_a_stream_and_each_has_a_task(settings: Settings) -> None:
    async with asking(settings) as one, asking(settings) as two:
        await made(one, rate_per_s=10.0)
        first = await sent(one, "order-7")
        other = await sent(two, "order-8")
        same = await sent(two, "order-7")  # known to the other process alone
        found = await tasks(one)
        limits = [await one("GET", f"/v1/limits/task/{task.id}") for task in found]

        assert (first.status, other.status, same.status) == (201, 201, 201)
        assert len(found) == 2
        assert [limit.json["limit"]["rate_per_s"] for limit in limits] == [5.0, 5.0]
        await one.door.close()
        await two.door.close()
        assert sorted(task.total or 0 for task in await tasks(one)) == [1, 2]


async def test_what_the_leader_has_sealed_meanwhile_goes_to_another_task(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asking(settings) as ask:
        await made(ask)
        await sent(ask, "order-7")
        [task] = await tasks(ask)
        await ask.backend.registry.change(task.id, seal(1))
        # as of a process that stood still for longer than it holds the task
        monkeypatch.setattr(feed.FedTask, "_is_late", lambda fed: True)
        late = await sent(ask, "order-8")
        _, second = await tasks(ask)

        assert (late.status, late.json["id"]) == (201, f"{second.id}-1")
        assert await on_lane(ask, second) == [(1, "order-8")]
        await ask.door.close()


async def test_after_a_day_another_task_follows(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asking(settings) as ask:
        await made(ask)
        await sent(ask, "order-7")
        monkeypatch.setattr(feed, "LONGEST_S", 0.0)
        await sent(ask, "order-8")
        await ask.door.close()

        assert [task.total for task in await tasks(ask)] == [1, 1]


async def test_other_sinks_are_for_pushes_from_then_on(settings: Settings) -> None:
    async with asking(
        settings.but(**{"sinks": {"a": {"kind": "null"}, "b": {"kind": "null"}}})
    ) as ask:
        await made(ask, sinks=["a"])
        await sent(ask, "order-7")
        await made(ask, sinks=["b"])
        await ask.door.single.feeds.follow()
        await sent(ask, "order-8")
        await ask.door.close()

        assert [(task.sinks, task.total) for task in await tasks(ask)] == [(("a",), 1), (("b",), 1)]


async def test_a_change_holds_for_all_tasks(settings: Settings) -> None:
    async with asking(settings) as one, asking(settings) as two:
        await made(one)
        await sent(one, "order-7")
        await sent(two, "order-8")
        await one("PUT", "/v1/streams/orders/quota", {"quota": 7}, headers={"If-Match": "*"})
        paused = await one("POST", "/v1/streams/orders/pause", {"reason": "wrong text"})
        held = {(task.quota, task.state, task.reason) for task in await tasks(one)}
        taken = await sent(one, "order-9")
        await made(one, level="low")
        await one("POST", "/v1/streams/orders/resume")
        now = {(task.quota, task.level, task.state) for task in await tasks(one)}

        assert (paused.json["paused"], paused.json["reason"]) == (True, "wrong text")
        assert held == {(7, State.PAUSED, "wrong text")}
        assert taken.status == 201
        assert now == {(1, "low", State.RUNNING)}
        await one.door.close()
        await two.door.close()


async def test_a_stream_that_is_ended_is_sealed_and_takes_no_more(settings: Settings) -> None:
    async with asking(settings) as ask:
        await made(ask)
        await sent(ask, "order-7")
        [task] = await tasks(ask)
        ended = await ask("DELETE", "/v1/streams/orders")
        await ask.door.single.feeds.follow()
        refused = await sent(ask, "order-8")
        await ask.door.close()

        assert (ended.status, refused.status) == (200, 404)
        assert (await ask.backend.registry.get(task.id)).total == 1


async def test_a_push_expires_so_long_after_it_came(settings: Settings) -> None:
    async with asking(settings) as ask:
        await made(ask, expires_after_s=60)
        await sent(ask, "order-7")
        await sent(ask, "order-8", body={**PUSH, "expires_at_ms": 4_000_000_000_000})
        await sent(ask, "order-9", body={**PUSH, "not_before_ms": "2h"})
        [task] = await tasks(ask)
        pushes = [push async for push in retained_pushes(ask.backend, task)]
        await ask.door.close()

        assert pushes[0].expires_at_ms - pushes[0].submitted_at_ms in range(59_000, 60_001)
        assert pushes[1].expires_at_ms == 4_000_000_000_000
        assert pushes[2].expires_at_ms - pushes[2].not_before_ms in range(60_000, 61_000)


@pytest.mark.parametrize(
    ("key", "body", "query", "status", "told"),
    [
        ("k", {"recipient": " "}, {}, 400, "a push has no recipient"),
        ("k", {"recipient": 3}, {}, 400, "the body is not a push: Expected `str`, got `int`"),
        ("k", {**PUSH, "key": "k"}, {}, 400, "the key of a push is in the path"),
        ("k" * 201, PUSH, {}, 400, "key of a push has 201 characters"),
        ("", PUSH, {}, 400, "the key is empty; give one of yours"),
        ("k", PUSH, {"from": 1}, 400, "'from' is not a parameter here"),
        ("k", PUSH, {"app": "shop"}, 404, "there is no stream 'orders' of an app that you may"),
        ("k", {**PUSH, "body": "x" * 70_000}, {}, 413, "over the limit of"),
        ("k", {**PUSH, "body": "x" * 300_000}, {}, 413, "the body is longer than 262,144 bytes"),
    ],
)
async def test_what_is_no_push_is_refused_and_leaves_no_task(
    settings: Settings, key: str, body: Any, query: Any, status: int, told: str
) -> None:
    async with asking(settings) as ask:
        await made(ask)
        answer = await sent(ask, key, body=body, query=query)

        assert answer.status == status
        assert told in answer.json["detail"]
        assert "device-7" not in answer.json["detail"]
        await ask.door.close()
        assert await tasks(ask) == []


async def test_a_refused_push_does_not_take_its_key(settings: Settings) -> None:
    async with asking(settings) as ask:
        await made(ask)
        await sent(ask, "order-7", body={"recipient": ""})
        taken = await sent(ask, "order-7")
        await ask.door.close()

        assert taken.status == 201


async def test_only_so_many_pushes_wait_at_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "MOST_IN_FLIGHT", 2)
    async with asking(settings) as ask:
        await made(ask)
        answers = await asyncio.gather(*(sent(ask, f"k{n}") for n in range(3)))
        await ask.door.close()

        assert sorted(one.status for one in answers) == [201, 201, 503]


async def test_a_token_sends_to_streams_of_its_apps_alone(settings: Settings) -> None:
    async with asking(settings) as ask:
        await made(ask, app="shop")
        await made(ask, app="news")
        shop, other = await ask.made("submitter", "shop"), await ask.made("submitter", "games")
        viewer = await ask.made("viewer", "shop")
        taken = await sent(ask, "k", token=shop)
        unseen = await sent(ask, "k", token=other)
        nowhere = await sent(ask, "k", "nowhere", token=other)
        too_low = await sent(ask, "k", token=viewer)
        several = await sent(ask, "k")
        named = await sent(ask, "k2", query={"app": "news"})
        await ask.door.close()

        assert (taken.status, unseen.status, too_low.status) == (201, 404, 403)
        assert unseen.body.replace(b"orders", b"X") == nowhere.body.replace(b"nowhere", b"X")
        assert (several.status, named.status) == (400, 201)
        assert "several apps have a stream 'orders': news, shop" in several.json["detail"]
        assert [task.total for task in await tasks(ask, app="shop")] == [1]


async def test_the_bounds_of_a_token_hold_for_a_stream_that_it_makes(settings: Settings) -> None:
    async with asking(settings) as ask:
        token = await ask.made("submitter", "shop", levels=("low",), most_quota=2, most_per_s=5.0)

        async def put(**options: Any) -> Answer:
            return await ask("PUT", "/v1/streams/orders", {"level": "low", **options}, token=token)

        high, quota = await put(level="high"), await put(quota=3)
        taken = await put(quota=2)
        changed = await put(quota=1)
        same = await put(quota=2)
        steered = await ask("PUT", "/v1/streams/orders/quota", {"quota": 1}, token=token)

        assert (high.status, quota.status, taken.status, same.status) == (403, 403, 200, 200)
        assert (taken.json["app"], taken.json["rate_per_s"]) == ("shop", 5.0)
        assert changed.status == steered.status == 403
        assert "quota would change, which needs the role operator" in changed.json["detail"]


async def test_nothing_is_taken_while_nothing_may_be_changed(settings: Settings) -> None:
    async with asking(settings) as ask:
        await made(ask)
        await ask("PUT", "/v1/mode", {"read_only": True}, headers={"if-match": "*"})
        refused = await sent(ask, "order-7")

        assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        assert await tasks(ask) == []


async def test_streams_are_listed_and_shown(settings: Settings) -> None:
    async with asking(settings) as ask:
        await made(ask)
        await made(ask, "alarms", app="shop", level="low")
        await sent(ask, "order-7")
        [task] = await tasks(ask)
        listed, shown = await ask("GET", "/v1/streams"), await ask("GET", "/v1/streams/orders")
        await ask.door.close()

        assert [(one["app"], one["name"]) for one in listed.json] == [
            ("default", "orders"),
            ("shop", "alarms"),
        ]
        assert (shown.json["tasks"], shown.json["delivered"]) == ([task.id], 0)
        assert msgspec.json.encode(shown.json)


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("-orders", {}, "is not a name for a stream; use 1 to 64 letters"),
        ("orders", {"sinks": ["nope"]}, "no sink is named 'nope'"),
        ("orders", {"quota": 0}, "quota: expected `int` >= 1"),
        ("orders", {"app": " "}, "app"),
    ],
)
async def test_a_stream_that_cannot_be_is_refused(
    settings: Settings, name: str, options: dict[str, Any], told: str
) -> None:
    async with asking(settings) as ask:
        answer = await ask("PUT", f"/v1/streams/{name}", {"level": "high", **options})

        assert answer.status == 400, answer.body
        assert told in answer.json["detail"]
        assert (await ask("GET", "/v1/streams")).json == []
