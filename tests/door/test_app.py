"""The list of operations over HTTP: what is asked for, who may, and how it is refused."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from pushlane import Settings
from pushlane.core.errors import Unreachable
from pushlane.core.task import Level, Task
from pushlane.door.events import WATCHES
from pushlane.door.openapi import document
from pushlane.door.requests import MOST_BYTES
from pushlane.operations.listing import OPERATIONS
from tests.door.asking import asking

WHATEVER = {"if-match": "*"}


async def test_what_is_changed_is_shown_as_the_command_shows_it(settings: Settings) -> None:
    async with asking(settings) as ask:
        changed = await ask("PUT", "/v1/levels", {"weights": "5:4:1"}, headers=WHATEVER)
        shown = await ask("GET", "/v1/levels")

    assert (changed.status, changed.headers["content-type"]) == (200, "application/json")
    assert changed.json == shown.json
    assert shown.json["high"] == {"weight": 5, "percent": 50.0}


async def test_a_task_is_steered_by_its_id_key_or_name(settings: Settings) -> None:
    async with asking(settings) as ask:
        made = Task(id="t1", level=Level.HIGH, lane="task-t1", name="sale", app="shop", total=3)
        await ask.backend.registry.add(made)

        quota = await ask("PUT", "/v1/tasks/sale/quota", {"quota": 5}, headers=WHATEVER)
        paused = await ask("POST", "/v1/tasks/t1/pause")
        found = await ask("GET", "/v1/tasks", query={"state": ["paused", "done"], "app": "shop"})

    assert (quota.json["quota"], quota.json["changed"]) == (5, ["quota"])
    assert paused.json["state"] == "paused"
    assert [one["id"] for one in found.json] == ["t1"]
    assert not {"lane", "fingerprint", "eta_s"} & found.json[0].keys()


async def test_a_subject_with_a_slash_is_one_field(settings: Settings) -> None:
    async with asking(settings) as ask:
        wanted = {"rate_per_s": "60/min", "total": 5}
        limited = await ask("PATCH", "/v1/limits/app/shop", wanted, headers=WHATEVER)
        ended = await ask("PATCH", "/v1/limits/app/shop", {"total": None}, headers=WHATEVER)

    assert limited.json["limit"] == {"rate_per_s": 1.0, "total": 5}
    assert ended.json["limit"] == {"rate_per_s": 1.0}


@pytest.mark.parametrize(
    ("method", "path", "body", "query", "status", "told"),
    [
        ("GET", "/v1/tasks/nope", None, {}, 404, "there is no task 'nope'"),
        ("PUT", "/v1/levels", {"weights": 3}, {}, 400, "weights: expected `str`, got `int`"),
        ("PUT", "/v1/levels", {}, {}, 400, "object missing required field `weights`"),
        ("PUT", "/v1/levels", {"w": 1}, {}, 400, "unknown field `w`; set-levels has the fields"),
        (
            "PUT",
            "/v1/levels",
            [],
            {},
            400,
            "the body is not a JSON object; give the fields by name",
        ),
        ("PUT", "/v1/levels", {"weights": "0:0:0"}, {}, 400, "are all zero: nothing would be"),
        ("PUT", "/v1/levels", {"weights": "1:1:1"}, {"a": 1}, 400, "PUT takes no query"),
        ("GET", "/v1/tasks", {"app": "a"}, {}, 400, "a GET takes no body"),
        ("GET", "/v1/tasks", None, {"limit": "many"}, 400, "limit: expected `int`, got `str`"),
        ("GET", "/v1/tasks", None, {"app": ["a", "b"]}, 400, "app is given 2 times; give it once"),
        (
            "PUT",
            "/v1/tasks/t/quota",
            {"task": "u", "quota": 1},
            {},
            400,
            "task is given in the path",
        ),
        (
            "GET",
            "/v1/tasks",
            None,
            {"state": "gone"},
            400,
            "unknown state 'gone'; use any, submitted",
        ),
        ("GET", "/v1/dead", None, {"older_than_s": "1e308"}, 400, "older_than_s: expected `float`"),
        ("GET", "/v1/nowhere", None, {}, 404, "GET /v1/nowhere"),
        ("DELETE", "/v1/levels", None, {}, 405, "DELETE /v1/levels"),
    ],
)
async def test_a_refusal_is_a_problem_that_says_what_to_do(
    settings: Settings,
    method: str,
    path: str,
    body: Any,
    query: dict[str, Any],
    status: int,
    told: str,
) -> None:
    async with asking(settings) as ask:
        headers = WHATEVER if path == "/v1/levels" and method == "PUT" else {}
        answer = await ask(method, path, body, query=query, headers=headers)

    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")
    assert answer.json["status"] == status
    assert answer.json["type"].startswith("urn:pushlane:")
    assert told in answer.json["detail"]


async def test_a_body_that_is_no_json_says_where(settings: Settings) -> None:
    async with asking(settings) as ask:
        answer = await ask("PUT", "/v1/levels", parts=[b'{"weights": ', b"5:4:1}"])

    assert answer.status == 400
    assert "the body is not JSON: " in answer.json["detail"]


async def test_a_body_that_is_too_long_is_not_read_to_its_end(settings: Settings) -> None:
    read = 0

    def parts() -> Any:
        nonlocal read
        for _ in range(100):
            read += 1
            yield b" " * (MOST_BYTES // 4)

    async with asking(settings) as ask:
        answer = await ask("PUT", "/v1/levels", parts=parts())

    assert answer.status == 413
    assert f"{MOST_BYTES:,} bytes" in answer.json["detail"]


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer ", "Basic cm9vdDpyb290", "Bearer pl_0_0", "pl_1_2"]
)
async def test_without_a_token_nothing_is_shown(settings: Settings, authorization: str) -> None:
    async with asking(settings) as ask:
        for path in ("/v1/levels", "/v1/openapi.json"):
            answer = await ask("GET", path, token="", headers={"authorization": authorization})

            assert answer.status == 401
            assert answer.headers["www-authenticate"] == 'Bearer realm="pushlane"'
        assert (await ask("GET", "/health", token="")).status == 200


async def test_a_role_that_is_not_enough_is_told_which_is(settings: Settings) -> None:
    async with asking(settings) as ask:
        token = await ask.made("viewer")
        answer = await ask("PUT", "/v1/levels", {"weights": "1:1:1"}, token=token)

    assert answer.status == 403
    assert answer.json["detail"].endswith("has the role viewer, and set-levels needs operator")


async def test_what_is_of_another_app_is_not_found(settings: Settings) -> None:
    async with asking(settings) as ask:
        await ask.backend.registry.add(
            Task(id="t1", level=Level.HIGH, lane="task-t1", name="theirs", app="theirs")
        )
        token = await ask.made("operator", "ours")
        answers = [
            await ask("GET", "/v1/tasks/theirs", token=token),
            await ask("GET", "/v1/tasks/t1", token=token),
            await ask("POST", "/v1/tasks/t1/cancel", token=token),
            await ask("GET", "/v1/limits/app/theirs", token=token),
            await ask("GET", "/v1/tasks", query={"app": "theirs"}, token=token),
        ]
        listed = await ask("GET", "/v1/tasks", query={"state": "any"}, token=token)

    assert {one.status for one in answers} == {404}
    assert listed.json == []


async def test_a_token_that_was_revoked_opens_nothing_half_a_second_later(
    settings: Settings,
) -> None:
    async with asking(settings) as ask:
        clock = mock.Mock(return_value=0.0)
        ask.door.gate._clock_s = clock
        token = await ask.made("viewer")
        assert (await ask("GET", "/v1/levels", token=token)).status == 200
        [_, token_id, _] = token.split("_", 2)
        await ask("DELETE", f"/v1/access/{token_id}")

        clock.return_value = 0.51
        assert (await ask("GET", "/v1/levels", token=token)).status == 401


async def test_in_an_incident_a_change_is_refused_for_now(settings: Settings) -> None:
    async with asking(settings) as ask:
        mode = {"read_only": True, "reason": "we move"}
        await ask("PUT", "/v1/mode", mode, headers=WHATEVER)
        answer = await ask("PUT", "/v1/levels", {"weights": "1:1:1"}, headers=WHATEVER)
        shown = await ask("GET", "/v1/levels")

    assert (answer.status, answer.headers["retry-after"], shown.status) == (503, "5", 200)
    assert "we move" in answer.json["detail"]


async def test_a_service_that_is_away_is_told_as_that(settings: Settings) -> None:
    async with asking(settings) as ask:
        away = Unreachable("redis://127.0.0.1 does not answer")
        with mock.patch.object(ask.backend.registry, "weights", side_effect=away):
            answer = await ask("GET", "/v1/levels")

    assert (answer.status, answer.headers["retry-after"]) == (503, "5")
    assert answer.json["detail"] == "redis://127.0.0.1 does not answer"


async def test_a_defect_shows_nothing_of_itself(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async with asking(settings) as ask:
        defect = KeyError("recipient@example.org")
        with (
            mock.patch.object(ask.backend.registry, "weights", side_effect=defect),
            pytest.raises(KeyError),  # as the server is told of it, too
        ):
            await ask("GET", "/v1/levels")

    assert "GET /v1/levels ended in an unexpected KeyError" in caplog.text


async def test_the_document_has_each_operation_with_its_role(settings: Settings) -> None:
    async with asking(settings) as ask:
        shown = (await ask("GET", "/v1/openapi.json")).json

    described = [one for path in shown["paths"].values() for one in path.values()]
    assert len(described) == len(OPERATIONS) + 2 + len(WATCHES)  # and what takes lines, and a push
    assert all("Needs the role" in one["description"] for one in described)
    assert shown["openapi"] == "3.1.0"


def test_no_answer_has_a_field_that_may_be_null() -> None:
    def parts(schema: Any) -> Any:
        yield schema
        for one in schema.values() if isinstance(schema, dict) else schema:
            if isinstance(one, dict | list):
                yield from parts(one)

    schemas = document()["components"]["schemas"]
    assert [one for one in parts(schemas) if one == {"type": "null"}] == []


def test_what_generators_of_clients_would_guess_is_said() -> None:
    def parts(one: Any) -> Any:
        yield one
        for inner in one.values() if isinstance(one, dict) else one:
            if isinstance(inner, dict | list):
                yield from parts(inner)

    found = [one for one in parts(document()) if isinstance(one, dict)]

    assert [one for one in found if isinstance(one.get("enum"), list) and "type" not in one] == []
    numbers = [one for one in found if one.get("type") in ("integer", "number")]
    told = {(one["type"], one["format"]) for one in numbers}
    assert told == {("integer", "int64"), ("number", "double")}
    free = [one for one in found if one.get("type") == "object" and "properties" not in one]
    assert free
    assert all("additionalProperties" in one for one in free)
