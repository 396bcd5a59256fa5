"""Tasks over HTTP whose pushes come as lines: each line once, whatever is cut."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import msgspec
import pytest

from pushlane import Settings
from pushlane.backends import leases
from pushlane.backends.leases import LeaseGuard
from pushlane.core.task import State
from pushlane.model.names import submit_lease
from pushlane.operations.access import CreateToken
from pushlane.operations.doing import do
from pushlane.producers.received import LONGEST_LINE
from pushlane.producers.replay import retained_pushes
from tests.door.asking import ADMIN, Answer, Asking, asking

TRACEPARENT = f"00-{'a' * 32}-{'b' * 16}-01"


def lines(first: int, last: int, **more: Any) -> bytes:
    pushes = ({"recipient": f"user-{n}", "title": "Hi", **more} for n in range(first, last + 1))
    return b"".join(msgspec.json.encode(push) + b"\n" for push in pushes)


async def made(ask: Asking, token: str | None = None, **options: Any) -> str:
    answer = await ask("POST", "/v1/tasks", {"level": "high", **options}, token=token)
    assert answer.status == 200, answer.body
    return str(answer.json["id"])


async def sent(ask: Asking, task: str, *parts: bytes, first: int = 1, **more: Any) -> Answer:
    query = {"from": first} if first != 1 else {}
    return await ask("POST", f"/v1/tasks/{task}/pushes", query=query, parts=parts, **more)


async def on_lane(ask: Asking, task: str) -> list[tuple[int, str]]:
    """What lies on the task's lane, by seq."""
    found = retained_pushes(ask.backend, await ask.backend.registry.get(task))
    return [(push.seq, push.recipient) async for push in found]


def numbered(last: int) -> list[tuple[int, str]]:
    return [(n, f"user-{n}") for n in range(1, last + 1)]


async def test_a_task_is_made_filled_and_sealed(settings: Settings) -> None:
    async with asking(settings) as ask:
        task = await made(ask, key="sale", name="Sale", app="shop")
        first = await sent(ask, task, lines(1, 5_000))
        hidden = await ask.backend.registry.get(task)
        sealed = await ask("POST", f"/v1/tasks/{task}/seal", {"total": 5_000})

        assert first.json == {"task": task, "safe_line": 5_000}
        assert (hidden.state, hidden.total) == (State.SUBMITTED, None)
        assert (sealed.json["state"], sealed.json["total"]) == ("running", 5_000)
        assert await on_lane(ask, task) == numbered(5_000)


async def test_it_goes_on_from_what_is_safe_and_leaves_out_what_is_there(
    settings: Settings,
) -> None:
    async with asking(settings) as ask:
        task = await made(ask)
        await sent(ask, task, lines(1, 100))
        repeated = await sent(ask, task, lines(51, 130), first=51)
        again = await sent(ask, task, lines(1, 130))
        safe = await ask("GET", f"/v1/tasks/{task}/pushes")

        assert (repeated.json["safe_line"], again.json["safe_line"]) == (130, 130)
        assert safe.json == {"task": task, "safe_line": 130}
        assert await on_lane(ask, task) == numbered(130)


async def test_lines_may_be_cut_anywhere_and_be_gzip(settings: Settings) -> None:
    async with asking(settings) as ask:
        task = await made(ask)
        packed = gzip.compress(lines(1, 3_000).removesuffix(b"\n"))
        parts = [packed[at : at + 77] for at in range(0, len(packed), 77)]
        answer = await sent(ask, task, *parts, headers={"content-encoding": "gzip"})

        assert answer.json["safe_line"] == 3_000
        assert await on_lane(ask, task) == numbered(3_000)


async def test_a_gap_is_refused_with_the_line_to_go_on_from(settings: Settings) -> None:
    async with asking(settings) as ask:
        task = await made(ask)
        await sent(ask, task, lines(1, 10))
        answer = await sent(ask, task, lines(12, 20), first=12)

        assert (answer.status, answer.json["safe_line"]) == (409, 10)
        assert "go on from 11" in answer.json["detail"]
        assert await on_lane(ask, task) == numbered(10)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"{", "it is not a JSON object on one line"),
        (b'{"title": "Hi"}', "missing required field `recipient`"),
        (b'{"recipient": "a", "titel": "Hi"}', "unknown field `titel`"),
        (b'{"recipient": " "}', "a push has no recipient"),
        (b'{"recipient": "a", "expires_at_ms": "soon"}', "expires_at_ms 'soon' is not a time"),
        (b"[1]", "Expected `object`, got `array`"),
        (b'{"recipient": "a", "data": "%s"}' % (b"x" * 70_000), "Expected `object | null`"),
        (b'{"recipient": "a", "body": "%s"}' % (b"x" * 70_000), "over the limit of 65,536"),
        (b"\xff", "it is not a JSON object on one line"),
    ],
)
async def test_a_bad_line_is_named_and_what_was_before_is_safe(
    settings: Settings, bad: bytes, why: str
) -> None:
    async with asking(settings) as ask:
        task = await made(ask)
        answer = await sent(ask, task, lines(1, 7) + bad + b"\n" + lines(9, 9))

        assert (answer.status, answer.json["line"], answer.json["safe_line"]) == (400, 8, 7)
        assert why in answer.json["detail"]
        assert await on_lane(ask, task) == numbered(7)
        assert (await sent(ask, task, lines(8, 9), first=8)).json["safe_line"] == 9


async def test_a_line_without_end_is_refused(settings: Settings) -> None:
    async with asking(settings) as ask:
        task = await made(ask)
        answer = await sent(ask, task, lines(1, 3), *[b"x" * 65_536] * (LONGEST_LINE // 65_536 + 2))

        assert answer.status == 413
        assert (await ask("GET", f"/v1/tasks/{task}/pushes")).json["safe_line"] == 3


async def test_a_little_gzip_that_is_very_much_is_not_held_whole(settings: Settings) -> None:
    async with asking(settings) as ask:
        task = await made(ask)
        bomb = gzip.compress(b" " * 50_000_000)
        answer = await sent(ask, task, bomb, headers={"content-encoding": "gzip"})

        assert answer.status == 413


async def test_two_at_once_do_not_mix(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "WORK_TTL_S", 0.2)
    async with asking(settings) as ask:
        task = await made(ask)
        busy = LeaseGuard(ask.backend.lease, submit_lease(task), "busy", asyncio.sleep)

        async def other() -> Answer:
            return await sent(ask, task, lines(1, 3))

        answer = await busy.run(other, lambda: None)

        assert (answer.status, answer.headers["retry-after"]) == (409, "5")
        assert "another request is sending lines" in answer.json["detail"]


async def test_a_process_that_stops_says_what_is_safe(settings: Settings) -> None:
    async with asking(settings) as ask:
        task = await made(ask)
        await sent(ask, task, lines(1, 20))

        ask.door.stopping.set()
        stopped = await sent(ask, task, lines(1, 50))
        ask.door.stopping.clear()

        assert (stopped.status, stopped.headers["retry-after"]) == (503, "5")
        assert stopped.json["safe_line"] == 20
        assert (await sent(ask, task, lines(1, 60))).json["safe_line"] == 60


async def test_a_seal_needs_the_number_of_lines_that_are_there(settings: Settings) -> None:
    async with asking(settings) as ask:
        task = await made(ask)
        await sent(ask, task, lines(1, 10))

        early = await ask("POST", f"/v1/tasks/{task}/seal", {"total": 12})
        sealed = await ask("POST", f"/v1/tasks/{task}/seal", {"total": 10})
        again = await ask("POST", f"/v1/tasks/{task}/seal", {"total": 10})
        more = await sent(ask, task, lines(11, 12), first=11)

        assert (early.status, sealed.status, again.status, more.status) == (409, 200, 200, 409)
        assert f"task {task} has 10 lines, and you close it with 12" in early.json["detail"]
        assert "it takes no more" in more.json["detail"]


async def test_a_key_is_one_task_in_its_app(settings: Settings) -> None:
    async with asking(settings) as ask:
        first = await made(ask, key="sale", app="a")
        again = await made(ask, key="sale", app="a")
        other = await made(ask, key="sale", app="b")
        differs = await ask("POST", "/v1/tasks", {"level": "low", "key": "sale", "app": "a"})

        assert first == again != other
        assert differs.status == 409


async def test_a_submitter_finds_its_task_by_its_key(settings: Settings) -> None:
    async with asking(settings) as ask:
        token = await ask.made("submitter", "a")
        task = await made(ask, token=token, key="sale", app="a")

        found = await ask("GET", "/v1/tasks/sale", token=token)

        assert found.json["id"] == task


async def test_what_is_sent_at_once_runs_before_its_seal(settings: Settings) -> None:
    async with asking(settings) as ask:
        task = await made(ask, deliver="at_once")

        assert (await ask.backend.registry.get(task)).state is State.RUNNING


@pytest.mark.parametrize(
    ("bounds", "asked", "told"),
    [
        ({"levels": ["low"]}, {}, "may submit at low, not at high"),
        ({"sinks": ["fcm"]}, {}, "may submit only to fcm"),
        ({"most_quota": 5}, {"quota": 6}, "may ask for a quota up to 5, not 6"),
        ({"most_per_s": 10}, {"rate_per_s": 11}, "may ask for up to 10 pushes/s, not 11"),
        ({}, {"app": "b"}, "there is no app 'b' that you may see"),
    ],
)
async def test_a_submitter_asks_for_no_more_than_it_may(
    settings: Settings, bounds: dict[str, Any], asked: dict[str, Any], told: str
) -> None:
    async with asking(settings) as ask:
        wanted = CreateToken.made(name="a", grants="submitter", apps=("a",), **bounds)
        token = (await do(ask.backend, settings, ADMIN, wanted)).token

        answer = await ask("POST", "/v1/tasks", {"level": "high", "app": "a", **asked}, token=token)

        assert answer.status in (403, 404)
        assert told in answer.json["detail"]


async def test_a_bound_rate_holds_for_its_tasks(settings: Settings) -> None:
    async with asking(settings) as ask:
        wanted = CreateToken.made(name="a", grants="submitter", most_per_s=10)
        token = (await do(ask.backend, settings, ADMIN, wanted)).token

        task = await made(ask, token=token)

        limit = await ask("GET", f"/v1/limits/{task}")
        assert limit.json["limit"] == {"rate_per_s": 10.0}


async def test_of_another_app_no_line_is_taken(settings: Settings) -> None:
    async with asking(settings) as ask:
        task = await made(ask, app="b")
        token = await ask.made("submitter", "a")

        answer = await sent(ask, task, lines(1, 3), token=token)

        assert answer.status == 404
        assert await on_lane(ask, task) == []


async def test_what_a_push_has_comes_along(settings: Settings) -> None:
    async with asking(settings) as ask:
        task = await made(ask)
        line = {
            "recipient": "ada",
            "title": "Hi",
            "data": {"order": 7},
            "attributes": {"kind": "a"},
            "trace_id": TRACEPARENT,
            "tracestate": "a=1",
            "collapse": "score",
            "expires_at_ms": "2h",
        }
        await sent(ask, task, msgspec.json.encode(line))
        found = retained_pushes(ask.backend, await ask.backend.registry.get(task))

        [push] = [one async for one in found]
        assert (push.recipient, push.data) == ("ada", {"order": 7})
        assert (push.trace_id, push.tracestate) == (TRACEPARENT, "a=1")
        assert (push.collapse, push.attributes) == ("score", {"kind": "a"})
        assert push.expires_at_ms > push.submitted_at_ms
