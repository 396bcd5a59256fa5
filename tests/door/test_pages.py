"""Lists in pages: each item that is there all the time once, whatever comes and goes between."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, get_args
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest
from msgspec import inspect
from msgspec.structs import replace

from pushlane import Settings
from pushlane.core.names import DEAD_LANE, dead_lane, own_lane
from pushlane.core.push import DeadPush, Push, encode, encode_dead
from pushlane.core.task import Level, State, Task
from pushlane.door import requests
from pushlane.door.openapi import document
from pushlane.model.audit import Entry, write
from pushlane.model.presence import Process, ServedSink
from pushlane.model.recipients import AddressDeath
from pushlane.operations.finding import FindTasks
from pushlane.operations.listing import OPERATIONS
from pushlane.operations.operation import result_of
from pushlane.operations.paging import _Place, _question
from pushlane.operations.recipients import ListDeadAddresses
from pushlane.operations.tasks import ListTasks
from pushlane.pipeline.rules.history import request_run, run_key
from pushlane.pipeline.rules.rule import make_rule
from pushlane.pipeline.rules.rule_store import RuleStore
from tests.door.asking import Answer, Asking, asking
from tests.unreadable import store_unreadable

PAGED = {one.word() for one in OPERATIONS if "cursor" in one.__struct_fields__}


async def add_task(ask: Asking, number: int) -> str:
    app = "shop" if number % 3 else "theirs"
    task_id = f"t{number:03}"
    task = Task(id=task_id, level=Level.HIGH, lane=own_lane(task_id), app=app, total=3)
    await ask.backend.registry.add(replace(task, state=State.RUNNING))
    return task_id


async def remove_task(ask: Asking, task: str) -> None:
    await ask("POST", f"/v1/tasks/{task}/cancel")
    await ask("DELETE", f"/v1/tasks/{task}")


async def add_unreadable(ask: Asking, number: int) -> str:
    task = f"t{number * 7 % 100:03}"
    known = Task(id=task, level=Level.HIGH, lane=own_lane(task), total=3)
    await ask.backend.registry.add(replace(known, state=State.RUNNING))
    await store_unreadable(ask.backend.registry, task, quota=2.5)
    return task


async def remove_unreadable(ask: Asking, task: str) -> None:
    await ask("DELETE", f"/v1/unreadable/{task}")


async def add_entry(ask: Asking, number: int) -> str:
    app = "shop" if number % 3 else "theirs"
    entry = Entry(number, "ada", "cli", "pause-task", f"task/a{number:03}", {}, {}, app)
    await write(ask.backend.documents, entry)
    return entry.subject


async def remove_entry(ask: Asking, subject: str) -> None:
    for one in await ask.backend.documents.list("audit"):
        if subject.encode() in one.body:
            await ask.backend.documents.remove("audit", one.name)


async def add_limit(ask: Asking, number: int) -> str:
    subject = f"app/a{number * 7 % 100:03}"
    await ask("PATCH", f"/v1/limits/{subject}", {"total": 5}, headers={"if-match": "*"})
    return subject


async def remove_limit(ask: Asking, subject: str) -> None:
    await ask("DELETE", f"/v1/limits/{subject}", headers={"if-match": "*"})


async def add_token(ask: Asking, number: int) -> str:
    made = await ask("POST", "/v1/access", {"name": f"n{number}", "grants": "viewer"})
    return str(made.json["id"])


async def remove_token(ask: Asking, token: str) -> None:
    await ask("DELETE", f"/v1/access/{token}")


async def add_suppressed(ask: Asking, number: int) -> str:
    app = f"a{number * 7 % 100:03}"
    await ask("POST", "/v1/suppressions/add", {"values": ["ada"], "app": app})
    return app


async def remove_suppressed(ask: Asking, app: str) -> None:
    await ask("DELETE", "/v1/suppressions", {"app": app})


async def add_stream(ask: Asking, number: int) -> str:
    name = f"s{number * 7 % 100:03}"
    await ask("PUT", f"/v1/streams/{name}", {"level": "high", "app": "shop"})
    return name


async def remove_stream(ask: Asking, name: str) -> None:
    await ask("DELETE", f"/v1/streams/{name}")


async def add_dead(ask: Asking, number: int) -> str:
    """A dead push on one of three lanes; those of a lane have died in any order."""
    task = f"d{number % 3}"
    lane = dead_lane(task) if number % 3 else DEAD_LANE
    await ask.backend.broker.open_lane(lane)
    body = encode(Push(task, number + 1, "ada"))
    dead = DeadPush(task, number + 1, 5, "HTTP 410", 10_000 + number * 7 % 10, body)
    await ask.backend.broker.publish(lane, [encode_dead(dead)])
    return f"{task}-{number + 1}"


async def remove_dead(ask: Asking, push: str) -> None:
    await ask("POST", "/v1/dead/purge", {"pushes": [push]})


async def add_process(ask: Asking, number: int) -> str:
    """A process that began when another did, or before one that is there."""
    served = ServedSink(name=f"s{number * 7 % 100:03}")
    process = Process(
        id=f"d{number * 7 % 100:03}",
        kind="dispatcher",
        pid=7,
        version="1",
        started_at_ms=10_000 + number * 3 % 5,
        serves=(served.name,),
        served=(served,),
    )
    await ask.backend.presence.announce(process, 60.0)
    return process.id


async def remove_process(ask: Asking, process: str) -> None:
    await ask.backend.presence.leave(process)


async def add_sink(ask: Asking, number: int) -> str:
    """A sink that a process serves."""
    return (await add_process(ask, number)).replace("d", "s")


async def remove_sink(ask: Asking, sink: str) -> None:
    await remove_process(ask, sink.replace("s", "d"))


async def add_rule(ask: Asking, number: int) -> str:
    task = {"level": "low", "title": "Hi"}
    fields = {"audience": "users", "task": task, "cron": "0 9 * * MON"}
    rule = make_rule(f"r{number * 7 % 100:03}", fields, 5)
    await RuleStore(ask.backend.documents).add(rule)
    return rule.name


async def remove_rule(ask: Asking, rule: str) -> None:
    await ask("DELETE", f"/v1/rules/{rule}")


async def add_run(ask: Asking, number: int) -> str:
    """A run of a rule that has no other, asked for when that of another rule was, or before."""
    rule, at_ms = await add_rule(ask, number), 10_000 + number * 3 % 5
    await RuleStore(ask.backend.documents).change_history(rule, request_run(at_ms))
    return run_key(rule, at_ms)


async def remove_run(ask: Asking, run: str) -> None:
    await remove_rule(ask, run.split("-")[1])


async def add_alert(ask: Asking, number: int) -> str:
    name, to = f"a{number * 7 % 100:03}", "https://hooks.example.com/alerts"
    await ask("PUT", f"/v1/alerts/{name}", {"metric": "dead", "when": "> 5", "to": to})
    return name


async def remove_alert(ask: Asking, name: str) -> None:
    await ask("DELETE", f"/v1/alerts/{name}")


Add = Callable[[Asking, int], Awaitable[str]]
Remove = Callable[[Asking, str], Awaitable[None]]

LISTS: dict[str, tuple[str, Callable[[Any], str], Add, Remove]] = {
    "list-tasks": ("/v1/tasks", lambda one: one["id"], add_task, remove_task),
    "find-tasks": ("/v1/find/tasks", lambda one: one["id"], add_task, remove_task),
    "list-audit": ("/v1/audit", lambda one: one["subject"], add_entry, remove_entry),
    "list-limits": ("/v1/limits", lambda one: one["subject"], add_limit, remove_limit),
    "list-tokens": ("/v1/access", lambda one: one["id"], add_token, remove_token),
    "count-suppressions": (
        "/v1/suppressions",
        lambda one: one["name"],
        add_suppressed,
        remove_suppressed,
    ),
    "list-streams": ("/v1/streams", lambda one: one["name"], add_stream, remove_stream),
    "list-processes": ("/v1/processes", lambda one: one["id"], add_process, remove_process),
    "list-sinks": ("/v1/sinks", lambda one: one["sink"], add_sink, remove_sink),
    "list-rules": ("/v1/rules", lambda one: one["name"], add_rule, remove_rule),
    "list-rule-runs": ("/v1/rule-runs", lambda one: one["key"], add_run, remove_run),
    "list-alerts": ("/v1/alerts", lambda one: one["name"], add_alert, remove_alert),
    "list-unreadable": (
        "/v1/unreadable",
        lambda one: one["task_id"],
        add_unreadable,
        remove_unreadable,
    ),
    "list-dead": ("/v1/dead", lambda one: one["push"], add_dead, remove_dead),
}
each = pytest.mark.parametrize("word", LISTS)

GIVEN = "what was given: sinks, levels, apps, fields"
BOUNDED = {
    "TaskView": GIVEN,
    "ChangedTask": GIVEN,
    "TaskNow": GIVEN,
    "StreamView": GIVEN,
    "StreamNow": "a task for each process, and a day",
    "TokenView": GIVEN,
    "NewTokenView": GIVEN,
    "WhyView": "causes and reasons that there are",
    "Overview": "the worst tasks of as many as it looks at: `is_cut`",
    "ResultsView": "the most frequent reasons: `others`",
    "ReceiptsView": "10,000 receipts: `is_cut`",
    "PushView": "10,000 receipts: `is_cut`",
    "TraceView": "20 pushes of 10,000 receipts: `more`, `is_cut`",
    "RecordedView": "as many as were sent",
    "RetriedView": "those that this request has retried",
    "SuppressedIn": "where one value is suppressed",
    "Terms": "the sinks of one task",
    "PoolView": "1,024 lanes, and those that tasks have from when there were more",
    "ReportView": "as many rows as are asked for: `rows_in_all`",
    "ReportedReceipt": "as many as are asked for, the last of them",
    "Hashes": "as many as were sent",
    "RuleView": GIVEN,
    "AlertView": GIVEN,
    "AlertNow": GIVEN,
    "AcceptedView": "the targets of one sink",
    "PreviewView": "the 100 ends and parts that move most; all are counted",
    "CallerView": GIVEN,
    "ExaminedView": "100 findings: `counts` has all; checks that there are",
    "NowView": "levels that there are, 50 apps, 50 tasks, 20 that hold something",
    "HourView": "a point every 5 s, 200 marks, 200 spans",
    "TaskHourView": "as of all",
    "TaskSharesView": "120 steps",
}
"""What has a list and no pages: why its length does not grow with all that there is."""


def has_list(kind: inspect.Type) -> bool:
    """Tell whether an answer is a list, or has one among its fields."""
    lists = (inspect.ListType, inspect.CollectionType, inspect.VarTupleType)
    if isinstance(kind, lists):
        return True
    return isinstance(kind, inspect.StructType) and any(
        isinstance(one.type, lists) for one in kind.fields
    )


def test_each_list_has_pages_or_a_bound() -> None:
    shown = [result_of(one) for one in OPERATIONS if one.word() not in PAGED]
    listing = [one for one in shown if has_list(inspect.type_info(one))]

    assert {(get_args(one) or [one])[0].__name__ for one in listing} == BOUNDED.keys()


def next_of(answer: Answer) -> str:
    """The place of the next page, empty with the last one."""
    match = re.fullmatch(r'<(.*)>; rel="next"', answer.headers.get("link", ""))
    return match[1] if match else ""


async def walk(
    ask: Asking, path: str, token: str | None = None, **query: Any
) -> AsyncIterator[list[Any]]:
    """The pages, each asked for as the one before says."""
    answer = await ask("GET", path, query=query, token=token)
    while True:
        assert answer.status == 200, answer.body
        name = {"/v1/dead": "dead", "/v1/find/tasks": "tasks"}.get(path)
        found = answer.json if name is None else answer.json[name]
        yield found
        if not (there := next_of(answer)):
            return
        url = urlsplit(there)
        again: dict[str, list[str]] = {}
        for name, value in parse_qsl(url.query, strict_parsing=True):
            again.setdefault(name, []).append(value)
        answer = await ask("GET", url.path, query=again, token=token)


@each
async def test_the_pages_are_the_whole_list(settings: Settings, word: str) -> None:
    path, name_of, add, _ = LISTS[word]
    async with asking(settings) as ask:
        added = {await add(ask, number) for number in range(7)}
        whole = [name_of(one) async for page in walk(ask, path) for one in page]
        pages = [[name_of(one) for one in page] async for page in walk(ask, path, limit=3)]

    in_order = pages[::-1] if word == "list-tasks" else pages
    assert [one for page in in_order for one in page] == whole
    assert added <= {*whole}
    assert [len(page) for page in pages[:-1]] == [3] * (len(pages) - 1)
    assert 0 < len(pages[-1]) <= 3


@each
async def test_what_comes_and_goes_between_pages_hides_nothing_and_doubles_nothing(
    settings: Settings, word: str
) -> None:
    path, name_of, add, remove = LISTS[word]
    async with asking(settings) as ask:
        added = [await add(ask, number) for number in range(10)]
        came, went, shown = 10, set(), []
        async for page in walk(ask, path, limit=2):
            shown += [name_of(one) for one in page]
            gone = {name_of(one) for one in page[-1:]} & {*added}  # where the page has ended
            gone |= {one for one in added[came % 10 : came % 10 + 1] if one not in shown}
            for one in gone:
                await remove(ask, one)
            went |= gone
            if came < 14:
                await add(ask, came)
                came += 1

    assert len(shown) == len({*shown})
    assert {*added} - went <= {*shown}
    assert went


async def test_pages_of_dead_addresses_are_linked(settings: Settings) -> None:
    async with asking(settings) as ask:
        dead = [AddressDeath(n, 5, "gone", "shop", "") for n in range(700)]
        await ask.backend.dead_addresses.record("fcm", dead, 10)
        answer = await ask("GET", "/v1/dead-addresses", query={"sink": "fcm"})
        assert next_of(answer)
        after = urlsplit(next_of(answer))
        rest = await ask("GET", after.path, query=dict(parse_qsl(after.query)))
        by_number = await ask(
            "GET", "/v1/dead-addresses", query={"sink": "fcm", "after": answer.json["after"]}
        )

    assert rest.json == by_number.json
    both = answer.json["addresses"] + rest.json["addresses"]
    assert len({one["fingerprint"] for one in both}) == len(both) == 700


async def test_an_answer_has_so_many_at_most(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "MOST_A_PAGE", 4)
    async with asking(settings) as ask:
        for number in range(6):
            await add_task(ask, number)
        for limit in ({}, {"limit": 0}, {"limit": 1_000_000}):
            pages = [page async for page in walk(ask, "/v1/tasks", **limit)]

            assert [[one["id"] for one in page] for page in pages] == [
                ["t002", "t003", "t004", "t005"],
                ["t000", "t001"],
            ]


async def test_a_page_has_the_tasks_that_fit(settings: Settings) -> None:
    async with asking(settings) as ask:
        for number in range(9):
            task = await add_task(ask, number)
            if number % 2:
                await ask("POST", f"/v1/tasks/{task}/pause")
        pages = [
            [one["id"] for one in page]
            async for page in walk(ask, "/v1/tasks", state=["paused", "done"], limit=3)
        ]

    assert pages == [["t003", "t005", "t007"], ["t001"]]


@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/find/tasks", "/v1/audit"])
async def test_a_cursor_tells_nothing_of_another_app(settings: Settings, path: str) -> None:
    async with asking(settings) as ask:
        add = add_entry if path == "/v1/audit" else add_task
        for number in range(9):
            await add(ask, number)
        token = await ask.made("operator", "shop")
        shown = []
        async for page in walk(ask, path, token=token, limit=2):
            assert {one["app"] for one in page} == {"shop"}
            shown += page
        answer = await ask("GET", path, query={"limit": 2}, token=token)

    assert len(shown) == 6
    cursor = dict(parse_qsl(urlsplit(next_of(answer)).query))["cursor"]
    place = msgspec.json.decode(urlsafe_b64decode(cursor + "=="))[1]
    assert "theirs" not in place


async def test_a_cursor_goes_on_with_its_own_question_alone(settings: Settings) -> None:
    async with asking(settings) as ask:
        for number in range(5):
            await add_task(ask, number)
        answer = await ask("GET", "/v1/tasks", query={"limit": 2})
        cursor = dict(parse_qsl(urlsplit(next_of(answer)).query))["cursor"]
        of_another = [
            await ask("GET", "/v1/tasks", query={"cursor": cursor, "level": "high"}),
            await ask("GET", "/v1/audit", query={"cursor": cursor}),
        ]
        larger = await ask("GET", "/v1/tasks", query={"cursor": cursor, "limit": 100})

    assert [one.status for one in of_another] == [400, 400]
    assert "the cursor belongs to another list than this list-tasks" in of_another[0].json["detail"]
    assert [one["id"] for one in larger.json] == ["t000", "t001", "t002"]


def test_a_cursor_is_good_for_a_later_version_whose_list_has_another_field() -> None:
    later = msgspec.defstruct(
        "ListTasks", [("zone", str, "")], bases=(ListTasks,), frozen=True, kw_only=True
    )

    assert _question(later()) == _question(ListTasks())
    assert _question(later(zone="Europe/Berlin")) != _question(ListTasks())


@pytest.mark.parametrize("cursor", ["x", "é", "W10", "eyJhIjoxfQ", "a" * 1_999, "%00", "....", "W"])
async def test_what_is_no_cursor_is_refused(settings: Settings, cursor: str) -> None:
    async with asking(settings) as ask:
        answer = await ask("GET", "/v1/tasks", query={"cursor": cursor})

    assert answer.status == 400
    assert "cursor is not one that a page has given" in answer.json["detail"]


async def test_a_cursor_that_somebody_has_made_finds_no_more_than_they_may_see(
    settings: Settings,
) -> None:
    def forged(asked: Any, place: str) -> str:
        return urlsafe_b64encode(msgspec.json.encode(_Place(_question(asked), place))).decode()

    async with asking(settings) as ask:
        for place in ("-1", "x", "9" * 40, "1e9", "١"):
            for asked in (ListTasks(limit=5), FindTasks(limit=5), ListDeadAddresses()):
                path = f"/v1{asked.path}"
                answer = await ask("GET", path, query={"cursor": forged(asked, place)})

                assert answer.status == 400
                assert "there is no such place in the list" in answer.json["detail"]


def test_each_list_with_a_cursor_is_held_and_told() -> None:
    elsewhere = {"list-dead-addresses", "measure-alert", "list-ends"}  # tests/operations

    assert LISTS.keys() | elsewhere == PAGED
    for kind in OPERATIONS:
        told = document()["paths"][kind.path][kind.method.lower()]["responses"]["200"]
        assert ("Link" in told.get("headers", {})) == (kind.word() in PAGED)
