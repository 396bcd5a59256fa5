"""Whatever is asked for, no answer is a defect, and none is other than the document says.

The requests of each operation are made of the OpenAPI document, in the same order in each run; more
of them with `HYPOTHESIS_PROFILE=thorough`. Each is made by callers of all roles, in turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import hypothesis
import pytest
from hypothesis import HealthCheck, given
from jsonschema import Draft202012Validator as Validator
from msgspec.structs import replace

import pushlane.diagnosis.look
from pushlane import Settings
from pushlane.backends.backend import Backend
from pushlane.core.names import dead_lane, own_lane
from pushlane.core.push import DeadPush, Push, encode, encode_dead
from pushlane.core.task import Level, State, Task, now_ms
from pushlane.door.openapi import document
from pushlane.model.access import Role
from pushlane.operations.listing import OPERATIONS
from pushlane.operations.operation import Of
from pushlane.pipeline.rules.history import Run, RunState
from pushlane.pipeline.rules.rule_store import RuleStore
from tests.door.asking import Answer, Asking, asking
from tests.door.shapes import Asked, Shapes

MARK = "secret-of-b"
A, B = "shop", "news"
WORDS = {
    "task": ("sale", "open", "shop/open", "past", "theirs", "sale-name"),
    "from": (1, 2),
    "name": ("codes", "sale", "theirs"),
    "If-Match": ("*",),
    "app": (A, B),
    "apps": (A, B),
    "key": ("open", "new"),
    "push": ("sale-1", "sale-2", "theirs-1"),
    "push_id": ("sale-1", "sale-2", "theirs-1"),
    "sink": ("default", "app", ""),
    "sinks": ("default", "app"),
    "subject": ("app/shop", "sale", "task/sale", "sink/default", "app/*", f"app/{B}"),
    "quiet": ("22:00-08:00", ""),
    "zone": ("Europe/Berlin", ""),
    "weights": ("6:3:1",),
    "rule": ("5%", "off"),
    "stop_if_dead": ("5%", "off"),
    "rate_per_s": ("100/s", "100/min"),
    "task:object": tuple({"level": "low", "title": f"Hi of {app}", "app": app} for app in (A, B)),
    "cron": ("0 9 * * MON",),
    "when": ("> 5%",),
    "to": ("https://hooks.example.com/alerts",),
    "by": ("sink", "app", ""),
    "where": ("sink=default", f"app={A}", f"app={B}"),
}
STATUSES = {200, 201, 400, 401, 403, 404, 405, 409, 412, 413, 428}
_SCHEMAS = {"schemas": document()["components"]["schemas"]}
PLACES = [
    (path, method, described)
    for path, methods in document()["paths"].items()
    for method, described in methods.items()
    if not path.startswith(
        "/watch/"
    )  # which is an answer without an end: tests/door/test_watching.py
]


class Caller(NamedTuple):
    """A role, and the app whose tasks alone it sees, if there is one."""

    role: Role
    app: str = ""


CALLERS = [*map(Caller, Role), Caller(Role.SUBMITTER, A), Caller(Role.OPERATOR, A)]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the two looks at a task follow each other without a second between."""
    monkeypatch.setattr(pushlane.diagnosis.look, "_BETWEEN_S", 0.0)


@pytest.mark.parametrize(
    ("path", "method", "described"), PLACES, ids=[one["operationId"] for *_, one in PLACES]
)
def test_every_answer_is_one_that_the_document_has(
    settings: Settings, path: str, method: str, described: dict[str, Any]
) -> None:
    validators = _validators(described)
    settings = replace(settings, rules_over_http=True)
    with asyncio.Runner() as runner, _served(runner, settings) as (http, tokens):
        spare = runner.run(http("POST", "/v1/access", {"name": "spare", "grants": "viewer"})).json
        requests = Shapes(document(), {**WORDS, "token": [spare["id"]]})

        @hypothesis.settings(
            derandomize=True,
            database=None,
            max_examples=2 * hypothesis.settings.default.max_examples,
            suppress_health_check=list(HealthCheck),
        )
        @given(asked=requests.requests(path, described))
        def holds(asked: Asked) -> None:
            for caller, token in tokens.items():
                answer = runner.run(_answered(http, method, asked, token))
                told = f"{caller} got {answer.status} {answer.body[:500]!r} for {asked}"
                assert answer.status in STATUSES, told
                is_done = answer.status < 300
                assert is_done == (answer.headers["content-type"] == "application/json"), told
                if caller.app:
                    assert MARK.encode() not in answer.body, told
                if asked.is_at:
                    errors = validators[answer.headers["content-type"]].iter_errors(answer.json)
                    assert [one.message for one in errors] == [], told
                    assert not is_done or _may(caller, described["operationId"]), told

        holds()


async def _answered(http: Asking, method: str, asked: Asked, token: str) -> Answer:
    given = {"query": asked.query, "headers": asked.headers, "parts": [asked.body], "token": token}
    return await http(method.upper(), f"/v1{asked.path}", **given)


def _may(caller: Caller, operation: str) -> bool:
    for kind in OPERATIONS:
        if kind.word().replace("-", "_") == operation:
            sees = not (caller.app and kind.of is Of.EVERYTHING)
            return sees and caller.role.may(kind.role)
    return caller.role.may(Role.SUBMITTER)


def _validators(described: dict[str, Any]) -> dict[str, Validator]:
    """What holds an answer against its schema, by its media type."""
    return {
        media_type: Validator({**content["schema"], "components": _closed(_SCHEMAS)})
        for answer in described["responses"].values()
        for media_type, content in answer["content"].items()
    }


def _closed(schema: Any) -> Any:
    """A schema that allows no field that it does not name."""
    if not isinstance(schema, dict):
        return schema
    inner = {name: _closed(one) for name, one in schema.items()}
    return {"additionalProperties": False, **inner} if "properties" in schema else inner


@contextmanager
def _served(
    runner: asyncio.Runner, settings: Settings
) -> Iterator[tuple[Asking, Mapping[Caller, str]]]:
    """An application with things of each app, a task for lines, and a token of each caller."""

    async def filled(http: Asking) -> Mapping[Caller, str]:
        await _fill(http.backend)
        whatever = {"if-match": "*"}
        raised = await http("PUT", "/v1/formats", {"min_format": 3}, headers=whatever)
        assert raised.status == 200
        of_a = {"level": "high", "app": A}
        task = await http("POST", "/v1/tasks", {**of_a, "key": "open"})
        stream = await http("PUT", "/v1/streams/codes", of_a)
        assert task.status == stream.status == 200
        await _make_rules(http)
        return {one: await http.made(one.role, *filter(None, [one.app])) for one in CALLERS}

    opened = asking(settings)
    http = runner.run(opened.__aenter__())
    try:
        yield http, runner.run(filled(http))
    finally:
        runner.run(opened.__aexit__(None, None, None))


async def _make_rules(http: Asking) -> None:
    """A rule with a run, and an alert, of each app."""
    for name, app, mark in (("sale", A, "our"), ("theirs", B, MARK)):
        task = {"level": "low", "title": f"Hi of {mark}", "app": app}
        rule = {"audience": f"{mark} users", "cron": "0 9 * * MON", "task": task}
        alert = {"metric": "dead", "when": "> 5", "to": f"https://{mark}.example.com", "app": app}
        for path, body in ((f"/v1/rules/{name}", rule), (f"/v1/alerts/{name}", alert)):
            made = await http("PUT", path, body)
            assert made.status == 200, made.body
        failed = Run(at_ms=5).ended(RunState.FAILED, 6, f"{mark} users cannot be read")
        store = RuleStore(http.backend.documents)
        await store.change_history(name, lambda before, run=failed: before.with_runs(run))


async def _fill(backend: Backend) -> None:
    past = Task(id="past", level=Level.LOW, lane=own_lane("past"), app=A, state=State.DONE)
    await backend.registry.add(past)
    for task, app, name in (("sale", A, "sale-name"), ("theirs", B, MARK)):
        lane = own_lane(task)
        made = Task(id=task, level=Level.HIGH, lane=lane, app=app, name=name, total=2)
        await backend.registry.add(made)
        await backend.broker.open_lane(lane)
        await backend.broker.publish(lane, [encode(Push(task, seq, name)) for seq in (1, 2)])
        await backend.broker.open_lane(dead_lane(task))
        dead = DeadPush(task, 1, 5, f"HTTP 410 {name}", now_ms(), encode(Push(task, 1, name)))
        await backend.broker.publish(dead_lane(task), [encode_dead(dead)])
