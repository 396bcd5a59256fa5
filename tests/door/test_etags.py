"""Changes of what somebody else may have changed: refused unless that was seen."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from pushlane import Settings
from pushlane.core.push import FORMAT
from pushlane.core.task import Level, State, Task
from pushlane.door.openapi import document
from pushlane.model import task_changes
from pushlane.model.presence import Process, ServedSink, SinkTarget
from pushlane.model.targets import accept
from pushlane.operations.doing import do
from pushlane.operations.listing import OPERATIONS
from pushlane.operations.operation import ETag
from pushlane.operations.shares import SetLevels
from pushlane.operations.tasks import SetQuota
from tests.door.asking import ADMIN, Answer, Asking, asking

TARGET = SinkTarget("webhook", "push.example.com", "01")
TASK = "/v1/tasks/t1"
LIMIT = "/v1/limits/app/shop"
TURNS = "/v1/apps/shop/quota"
STREAM = "/v1/streams/orders"
ACCEPTED = "/v1/sinks/push/accept"
SETTING: list[tuple[str, str, str, dict[str, Any] | None]] = [
    (TASK, "PUT", f"{TASK}/quota", {"quota": 7}),
    (TASK, "PUT", f"{TASK}/stop-if-dead", {"rule": "7%"}),
    (TASK, "PATCH", f"{TASK}/times", {"expires_at_ms": 4_000_000_000_000}),
    (TASK, "POST", f"{TASK}/promote", None),
    (TASK, "POST", f"{TASK}/demote", None),
    ("/v1/levels", "PUT", "/v1/levels", {"weights": "7:2:1"}),
    (LIMIT, "PATCH", LIMIT, {"total": 7}),
    (LIMIT, "DELETE", LIMIT, None),
    (TURNS, "PATCH", TURNS, {"quota": 7}),
    (TURNS, "DELETE", TURNS, None),
    (STREAM, "PUT", f"{STREAM}/quota", {"quota": 7}),
    ("/v1/pool", "PUT", "/v1/pool", {"lanes": 7}),
    ("/v1/formats", "PUT", "/v1/formats", {"min_format": 2}),
    ("/v1/mode", "PUT", "/v1/mode", {"read_only": True, "reason": "we move"}),
    (ACCEPTED, "POST", ACCEPTED, None),
]
"""Where a value is looked at, and what sets it."""

OTHER = {"7:2:1": "1:1:1", 2: 3, True: True, "we move": "it burns"}
"""What somebody else sets where the test sets this: 9 unless it is here."""

each = pytest.mark.parametrize(
    ("look", "method", "path", "body"), SETTING, ids=[f"{one[1]} {one[2]}" for one in SETTING]
)


async def fill(ask: Asking) -> None:
    task = Task(id="t1", level=Level.MEDIUM, lane="task-t1", app="shop", state=State.RUNNING)
    await ask.backend.registry.add(task)
    await ask("PATCH", LIMIT, {"total": 5, "quota": 2}, headers={"if-match": "*"})
    await ask("PUT", STREAM, {"level": "high", "app": "shop"})
    process = Process(
        id="d-1",
        kind="dispatcher",
        pid=7,
        version="1",
        format=FORMAT,
        serves=("push",),
        served=(ServedSink(name="push", target=TARGET),),
    )
    await ask.backend.presence.announce(process, 60.0)


async def tag_at(ask: Asking, path: str) -> str:
    return (await ask("GET", path)).headers["etag"]


async def changed(ask: Asking, look: str) -> None:
    """Somebody else changes what is looked at there."""
    for _, method, path, body in SETTING:
        if path.startswith(look) and (body or path == ACCEPTED):
            other = {name: OTHER.get(one, 9) for name, one in (body or {}).items()}
            answer = await ask(method, path, other, headers={"if-match": "*"})
            assert answer.status == 200, answer.body
            return


@each
async def test_a_value_is_set_over_what_was_seen(
    settings: Settings, look: str, method: str, path: str, body: Any
) -> None:
    async with asking(settings) as ask:
        await fill(ask)
        seen = await tag_at(ask, look)

        answer = await ask(method, path, body, headers={"if-match": seen})

        assert answer.status == 200, answer.body
        assert answer.headers["etag"] == await tag_at(ask, look) != seen


@each
async def test_over_another_than_was_seen_it_is_not_set_and_what_is_there_is_told(
    settings: Settings, look: str, method: str, path: str, body: Any
) -> None:
    async with asking(settings) as ask:
        await fill(ask)
        seen = await tag_at(ask, look)
        await changed(ask, look)
        now = await ask("GET", look)

        answer = await ask(method, path, body, headers={"if-match": seen})

        assert (answer.status, answer.headers["etag"]) == (412, now.headers["etag"])
        assert "has changed since you read it" in answer.json["detail"]
        assert answer.json["present"]
        assert (await ask("GET", look)).json == now.json
        again = await ask(method, path, body, headers={"if-match": answer.headers["etag"]})
        assert again.status == 200


@each
async def test_who_says_nothing_of_what_was_seen_is_asked_to(
    settings: Settings, look: str, method: str, path: str, body: Any
) -> None:
    async with asking(settings) as ask:
        await fill(ask)
        before = await tag_at(ask, look)

        silent = await ask(method, path, body)

        assert silent.status == 428
        assert "or `If-Match: *` to overwrite any value" in silent.json["detail"]
        assert await tag_at(ask, look) == before
        assert (await ask(method, path, body, headers={"if-match": "*"})).status == 200


def test_each_operation_that_needs_a_tag_is_held_here() -> None:
    needing = {one for one in OPERATIONS if one.etag is ETag.NEEDED}

    assert len(needing) == len(SETTING)


async def test_the_present_value_has_the_names_of_the_view(settings: Settings) -> None:
    async with asking(settings) as ask:
        await fill(ask)
        stale = {"if-match": '"0000000000000000"'}
        task = await ask("PUT", f"{TASK}/quota", {"quota": 3}, headers=stale)
        limit = await ask("DELETE", LIMIT, headers=stale)
        levels = await ask("PUT", "/v1/levels", {"weights": "1:1:1"}, headers=stale)
        turns = await ask("DELETE", TURNS, headers=stale)

    assert (task.json["present"]["quota"], task.json["present"]["level"]) == (1, "medium")
    assert limit.json["present"] == {"total": 5, "quota": 2}
    assert levels.json["present"] == {"weights": "6:3:1"}
    assert turns.json["present"] == {"quota": 2}


async def test_what_processes_change_on_their_own_is_no_other_value(settings: Settings) -> None:
    async with asking(settings) as ask:
        await fill(ask)
        seen = await tag_at(ask, TASK)
        for edit in (task_changes.later_opened, task_changes.seal(3), task_changes.reached("b")):
            await ask.backend.registry.change("t1", edit)

        assert await tag_at(ask, TASK) == seen
        await ask.backend.registry.change("t1", task_changes.finish(State.DONE))
        assert await tag_at(ask, TASK) == seen


async def test_what_is_right_whatever_was_before_needs_no_tag_and_minds_one(
    settings: Settings,
) -> None:
    async with asking(settings) as ask:
        await fill(ask)
        running = await tag_at(ask, TASK)
        paused = await ask("POST", f"{TASK}/pause")
        stale = [
            await ask("POST", f"{TASK}/{what}", headers={"if-match": running})
            for what in ("pause", "resume", "cancel")
        ]
        resumed = await ask(
            "POST", f"{TASK}/resume", headers={"if-match": f"{running}, {paused.headers['etag']}"}
        )

    assert (paused.status, resumed.status) == (200, 200)
    assert [(one.status, one.json["present"]["state"]) for one in stale] == [(412, "paused")] * 3
    assert resumed.headers["etag"] == running != paused.headers["etag"]


async def test_options_of_a_stream_are_set_over_those_that_were_seen(settings: Settings) -> None:
    made = {"level": "high", "app": "shop"}
    async with asking(settings) as ask:
        first = await ask("PUT", STREAM, made, headers={"if-match": '"0000000000000000"'})
        await ask("PUT", STREAM, made)
        seen = await tag_at(ask, STREAM)
        other = await ask("PUT", STREAM, {**made, "in_flight": 7})
        stale = await ask("PUT", STREAM, {**made, "in_flight": 9}, headers={"if-match": seen})
        now = {"if-match": other.headers["etag"]}
        again = await ask("PUT", STREAM, {**made, "in_flight": 8}, headers=now)
        there = await tag_at(ask, STREAM)

    assert (first.status, first.json.get("present")) == (412, {})
    assert (stale.status, stale.json["present"]["in_flight"]) == (412, 7)
    assert stale.headers["etag"] == other.headers["etag"] != seen
    assert (again.status, again.headers["etag"]) == (200, there)


RULE = {"audience": "users", "cron": "0 9 * * MON", "task": {"level": "low", "title": "Hi"}}
ALERT = {"metric": "dead", "when": "> 5", "to": "https://hooks.example.com/alerts"}


@pytest.mark.parametrize(
    ("path", "made", "other"),
    [
        ("/v1/rules/weekly", RULE, {"cron": "0 8 * * MON"}),
        ("/v1/alerts/failing", ALERT, {"when": "> 7"}),
    ],
)
async def test_a_rule_and_an_alert_are_replaced_as_they_were_seen(
    settings: Settings, path: str, made: dict[str, Any], other: dict[str, Any]
) -> None:
    [(field, value)] = other.items()
    changed = {**made, "replace": True, **other}
    async with asking(replace(settings, rules_over_http=True)) as ask:
        first = await ask("PUT", path, made, headers={"if-match": '"0000000000000000"'})
        await ask("PUT", path, made)
        seen = await tag_at(ask, path)
        set_over = await ask("PUT", path, changed, headers={"if-match": seen})
        stale = await ask("PUT", path, {**made, "replace": True}, headers={"if-match": seen})
        there = await ask("GET", path)

    assert (first.status, first.json["present"]) == (412, {})
    assert (set_over.status, stale.status) == (200, 412)
    assert stale.json["present"][field] == there.json[field] == value
    assert stale.headers["etag"] == set_over.headers["etag"] == there.headers["etag"] != seen


async def test_another_path_of_a_webhook_is_another_alert_and_is_not_told(
    settings: Settings,
) -> None:
    path, seen = "/v1/alerts/failing", {}
    async with asking(settings) as ask:
        for secret in ("one", "two"):
            to = f"https://hooks.example.com/{secret}"
            put = await ask("PUT", path, {**ALERT, "to": to, "replace": True})
            seen[secret] = put.headers["etag"]
        stale = await ask(
            "PUT", path, {**ALERT, "replace": True}, headers={"if-match": seen["one"]}
        )
        there = await tag_at(ask, path)

    assert (stale.status, stale.json["present"]["to"]) == (412, "hooks.example.com")
    assert b"/two" not in stale.body
    assert stale.headers["etag"] == there == seen["two"] != seen["one"]


@each
async def test_of_many_that_saw_the_same_one_sets_it(
    settings: Settings, look: str, method: str, path: str, body: Any
) -> None:
    async with asking(settings) as ask:
        await fill(ask)
        seen = await tag_at(ask, look)

        async def once() -> Answer:
            return await ask(method, path, body, headers={"if-match": seen})

        answers = await asyncio.gather(*(once() for _ in range(8)))

    assert sorted(one.status for one in answers) == [200, *[412] * 7]


async def test_limits_that_are_taken_away_while_others_are_set_stay_set(
    settings: Settings,
) -> None:
    async with asking(settings) as ask:
        await ask("PATCH", LIMIT, {"total": 5}, headers={"if-match": "*"})
        seen = await tag_at(ask, LIMIT)
        documents = ask.backend.documents
        is_set = False

        class Overtaking:
            """Sets another limit just before the one that was seen is removed."""

            def __getattr__(self, name: str) -> Any:
                return getattr(documents, name)

            async def remove(self, kind: str, name: str, expected: int | None = None) -> bool:
                nonlocal is_set
                if not is_set:
                    is_set = True
                    there = await documents.get(kind, name)
                    assert there
                    await documents.put(kind, name, b'{"total": 9}', there.version)
                return await documents.remove(kind, name, expected)

        object.__setattr__(ask.backend, "documents", Overtaking())
        answer = await ask("DELETE", LIMIT, headers={"if-match": seen})

        assert (answer.status, answer.json["present"]) == (412, {"total": 9})
        assert (await ask("GET", LIMIT)).json["limit"] == {"total": 9}


async def test_read_only_that_is_said_anew_is_another_value(settings: Settings) -> None:
    async with asking(settings) as ask:
        first = await ask("PUT", "/v1/mode", {"read_only": True}, headers={"if-match": "*"})
        await ask("PUT", "/v1/mode", {"read_only": False}, headers={"if-match": "*"})
        await ask("PUT", "/v1/mode", {"read_only": True, "reason": "b"}, headers={"if-match": "*"})
        ended = await ask(
            "PUT",
            "/v1/mode",
            {"read_only": False},
            headers={"if-match": first.headers["etag"]},
        )
        there = await ask("GET", "/v1/mode")

    assert (ended.status, ended.json["present"]) == (412, there.json)
    assert there.json["reason"] == "b"


async def test_a_sink_of_which_one_target_is_set_meanwhile_is_not_as_it_was_seen(
    settings: Settings,
) -> None:
    async with asking(settings) as ask:
        await fill(ask)
        seen = await tag_at(ask, ACCEPTED)
        documents, gets = ask.backend.documents, 0

        class Overtaking:
            """Accepts the target just before the change reads what is kept of it."""

            def __getattr__(self, name: str) -> Any:
                return getattr(documents, name)

            async def get(self, kind: str, name: str) -> Any:
                nonlocal gets
                gets += kind == "target"
                if gets == 3:  # two are looks
                    gets += 1
                    await accept(documents, TARGET.hash, 5)
                return await documents.get(kind, name)

        object.__setattr__(ask.backend, "documents", Overtaking())
        answer = await ask("POST", ACCEPTED, headers={"if-match": seen})

        assert gets >= 3
        assert (answer.status, answer.json["present"]) == (412, {"accepted": True})
        assert answer.headers["etag"] == await tag_at(ask, ACCEPTED)


async def test_a_sink_that_nobody_serves_has_nothing_to_show(settings: Settings) -> None:
    async with asking(settings) as ask:
        answer = await ask("GET", ACCEPTED)

    assert (answer.status, answer.json["detail"]) == (404, "no live process serves sink push")


@pytest.mark.parametrize("given", ["5", '"a" "b"', "*, *", '"a', "", "none"])
async def test_what_is_no_tag_is_refused(settings: Settings, given: str) -> None:
    async with asking(settings) as ask:
        answer = await ask("PUT", "/v1/levels", {"weights": "1:1:1"}, headers={"if-match": given})

    assert answer.status == 400
    assert "If-Match must be the ETag of an answer" in answer.json["detail"]


async def test_a_weak_tag_fits_nothing(settings: Settings) -> None:
    async with asking(settings) as ask:
        weak = {"if-match": f"W/{await tag_at(ask, '/v1/levels')}"}
        answer = await ask("PUT", "/v1/levels", {"weights": "1:1:1"}, headers=weak)

    assert answer.status == 412


async def test_where_no_tag_is_minded_none_is_taken(settings: Settings) -> None:
    async with asking(settings) as ask:
        tag = await tag_at(ask, "/v1/levels")
        token = {"name": "ada", "grants": "viewer"}
        answer = await ask("POST", "/v1/access", token, headers={"if-match": tag})
        whatever = await ask("POST", "/v1/access", token, headers={"if-match": "*"})

    assert (answer.status, whatever.status) == (400, 200)
    assert answer.json["detail"] == "create-token does not use If-Match: leave it out"


async def test_a_role_that_is_not_enough_comes_before_a_tag(settings: Settings) -> None:
    async with asking(settings) as ask:
        await fill(ask)
        token = await ask.made("viewer")
        answer = await ask("PUT", f"{TASK}/quota", {"quota": 3}, token=token)

    assert answer.status == 403


async def test_commands_and_clients_set_what_they_set(settings: Settings) -> None:
    async with asking(settings) as ask:
        await fill(ask)
        await do(ask.backend, settings, ADMIN, SetLevels(weights="1:1:1"))
        changed = await do(ask.backend, settings, ADMIN, SetQuota(task="t1", quota=4))

    assert changed.quota == 4


def test_the_document_tells_where_a_tag_is_shown_taken_and_needed() -> None:
    paths = document()["paths"]
    levels = paths["/levels"]
    pause = paths["/tasks/{task}/pause"]["post"]
    told = {one["name"]: one["required"] for one in levels["put"]["parameters"]}

    assert told == {"If-Match": True}
    assert {"412", "428"} < levels["put"]["responses"].keys()
    assert "ETag" in levels["get"]["responses"]["200"]["headers"]
    assert [one["required"] for one in pause["parameters"] if one["in"] == "header"] == [False]
    assert "428" not in pause["responses"]
