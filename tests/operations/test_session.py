"""What is written to the audit, and who may do what."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from pushlane import Settings, UserError
from pushlane.backends.backend import connect
from pushlane.core.errors import Unreachable
from pushlane.core.task import Level, State, Task
from pushlane.model.access import Access, Role
from pushlane.model.audit import Entry, differences
from pushlane.model.presence import Process, Resting, ServedSink
from pushlane.operations.doing import do
from pushlane.operations.listing import ListTasks
from pushlane.operations.processes import ListAudit
from pushlane.operations.session import Caller
from pushlane.operations.shares import GetLevels, SetLevels, SetLimit
from pushlane.operations.tasks import CancelTask, GetTask, PauseTask, ResumeTask, SetQuota
from pushlane.util.errors import UnknownTask

ADMIN = Caller("ada", "cli")


async def changes(settings: Settings, *operations: Any, caller: Caller = ADMIN) -> list[Entry]:
    """What the audit has of these, oldest first."""
    async with connect(settings) as backend:
        await backend.registry.add(Task(id="t", level=Level.HIGH, lane="task-t", name="sale"))
        for operation in operations:
            await do(backend, settings, caller, operation)
        return (await do(backend, settings, ADMIN, ListAudit()))[::-1]


async def test_a_change_says_who_did_what_from_what_to_what(settings: Settings) -> None:
    [levels, quota, limit] = await changes(
        settings,
        SetLevels(weights="5:4:1"),
        SetQuota(task="sale", quota=3),
        SetLimit(subject="app/shop", total=5),
    )

    assert (levels.who, levels.face, levels.operation) == ("ada", "cli", "set-levels")
    assert (levels.before, levels.after) == ({"weights": "6:3:1"}, {"weights": "5:4:1"})
    assert (quota.subject, quota.before, quota.after) == ("task/t", {"quota": 1}, {"quota": 3})
    assert (limit.subject, limit.before, limit.after) == ("app/shop", {}, {"total": 5})


async def test_the_state_of_a_task_is_told(settings: Settings) -> None:
    entries = await changes(settings, PauseTask(task="t", reason="wrong text"))

    [paused] = entries
    assert paused.before["state"] == "submitted"
    assert (paused.after["state"], paused.after["reason"]) == ("paused", "wrong text")


async def test_what_is_refused_and_what_only_looks_is_not_in_it(settings: Settings) -> None:
    async with connect(settings) as backend:
        await do(backend, settings, ADMIN, GetLevels())
        with pytest.raises(UserError, match="all zero"):
            await do(backend, settings, ADMIN, SetLevels(weights="0:0:0"))

        assert await do(backend, settings, ADMIN, ListAudit()) == []


async def test_it_is_searched_newest_first(settings: Settings) -> None:
    async with connect(settings) as backend:
        for weights in ("5:4:1", "4:3:2", "3:2:1"):
            await do(backend, settings, ADMIN, SetLevels(weights=weights))
        await do(backend, settings, Caller("bob", "http"), SetLimit(subject="app/a", total=1))

        newest = await do(backend, settings, ADMIN, ListAudit(limit=2))
        of_ada = await do(backend, settings, ADMIN, ListAudit(find="ada", limit=0))

    assert [one.who for one in newest] == ["bob", "ada"]
    assert [one.after["weights"] for one in of_ada] == ["3:2:1", "4:3:2", "5:4:1"]


async def test_a_change_stays_that_could_not_be_written_down(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async with connect(settings) as backend:
        with mock.patch.object(backend.documents, "put", side_effect=Unreachable("away")):
            shown = await do(backend, settings, ADMIN, SetLevels(weights="5:4:1"))

        assert str(shown.weights) == "5:4:1"
        assert str(await backend.registry.weights()) == "5:4:1"
    assert (
        "set-levels of levels by ada is done, but could not be written to the audit: away"
        in caplog.text
    )


@pytest.mark.parametrize(
    ("role", "operation", "needed"),
    [
        (Role.VIEWER, PauseTask(task="t"), "submitter"),
        (Role.SUBMITTER, SetQuota(task="t", quota=2), "operator"),
        (Role.SUBMITTER, SetLevels(weights="1:1:1"), "operator"),
    ],
)
async def test_a_role_that_is_not_enough_changes_nothing(
    settings: Settings, role: Role, operation: Any, needed: str
) -> None:
    async with connect(settings) as backend:
        await backend.registry.add(Task(id="t", level=Level.HIGH, lane="task-t"))
        before = await backend.registry.get("t")

        with pytest.raises(UserError, match=f"ada has the role {role}, and .* needs {needed}"):
            await do(backend, settings, Caller("ada", "http", Access(role)), operation)

        assert await backend.registry.get("t") == before


async def test_a_role_may_what_those_below_it_may(settings: Settings) -> None:
    caller = Caller("ada", "http", Access(Role.SUBMITTER))

    entries = await changes(
        settings, PauseTask(task="t"), ResumeTask(task="t"), CancelTask(task="t"), caller=caller
    )

    assert [one.operation for one in entries] == ["pause-task", "resume-task", "cancel-task"]


def test_what_has_no_value_is_absent_in_an_entry() -> None:
    assert differences({"a": 5, "b": None}, {"a": None, "b": 1}) == ({"a": 5}, {"b": 1})


def test_a_long_text_is_cut() -> None:
    before, after = differences({"a": 1, "b": "x"}, {"a": 1, "b": "y" * 500})

    assert before == {"b": "x"}
    assert after == {"b": "y" * 200 + "..."}


async def test_a_name_of_several_tasks_is_refused_to_a_token_of_one_app_too(
    settings: Settings,
) -> None:
    caller = Caller("bob", "http", Access(Role.OPERATOR, frozenset({"shop"})))
    async with connect(settings) as backend:
        for task, app in (("t1", "shop"), ("t2", "shop"), ("t3", "blog")):
            made = Task(id=task, level=Level.LOW, lane=f"task-{task}", app=app, name="sale")
            await backend.registry.add(made)

        with pytest.raises(UnknownTask, match="several tasks are named 'sale'") as refused:
            await do(backend, settings, caller, PauseTask(task="sale"))
        await do(backend, settings, caller, PauseTask(task="t1"))

    assert "t2 (low" in str(refused.value)
    assert "t3" not in str(refused.value)


async def test_a_name_that_only_others_share_is_that_of_the_callers_task(
    settings: Settings,
) -> None:
    caller = Caller("bob", "http", Access(Role.OPERATOR, frozenset({"shop"})))
    async with connect(settings) as backend:
        made = (("t1", "shop", "sale"), ("t2", "blog", "sale"), ("t3", "blog", "news"))
        for task, app, name in made:
            lane = f"task-{task}"
            await backend.registry.add(
                Task(id=task, level=Level.LOW, lane=lane, app=app, name=name)
            )

        changed = await do(backend, settings, caller, PauseTask(task="sale"))
        with pytest.raises(UnknownTask, match="of an app that you may see"):
            await do(backend, settings, caller, PauseTask(task="news"))

    assert changed.id == "t1"


async def test_a_list_stands_as_it_does_however_many_tasks_are_in_it(settings: Settings) -> None:
    rests = Resting("sink sms (open)", 1, "no connection", 0)
    served = (ServedSink(name="push", slots=10), ServedSink(name="sms", slots=10, resting=rests))
    serves = Process(
        id="d", kind="dispatcher", pid=7, version="1", serves=("push", "sms"), served=served
    )
    task = Task(
        id="t1",
        level=Level.HIGH,
        lane="task-t1",
        sinks=("push", "sms"),
        reached=("sms",),
        state=State.RUNNING,
        total=5,
    )
    async with connect(settings) as backend:
        await backend.registry.add(task)
        await backend.broker.open_lane(task.lane)
        await backend.broker.open_lane(task.lane_at("sms"))
        await backend.broker.publish(task.lane_at("sms"), [b"x"])
        await backend.presence.announce(serves, 60)
        shown = await do(backend, settings, ADMIN, GetTask(task="t1"))
        [alone] = await do(backend, settings, ADMIN, ListTasks())
        await backend.registry.add(Task(id="t2", level=Level.LOW, lane="task-t2"))
        beside = {one.id: one for one in await do(backend, settings, ADMIN, ListTasks())}

    assert shown.shown_state == "waiting"
    assert alone.shown_state == beside["t1"].shown_state == "running"


async def test_a_task_is_shown_while_the_broker_is_away(settings: Settings) -> None:
    task = Task(
        id="t",
        level=Level.HIGH,
        lane="task-t",
        sinks=("push", "sms"),
        reached=("sms",),
        state=State.RUNNING,
        total=5,
    )
    async with connect(settings) as backend:
        await backend.registry.add(task)
        with mock.patch.object(backend.broker, "backlog", side_effect=Unreachable("away")) as asked:
            shown = await do(backend, settings, ADMIN, GetTask(task="t"))

    assert asked.called
    assert (shown.id, shown.shown_state) == ("t", "waiting")
