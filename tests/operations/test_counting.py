"""What moves no end is previewed with counts, shows no recipient, and is done just as shown."""

from __future__ import annotations

import zlib
from base64 import urlsafe_b64decode
from typing import Any

import msgspec
import pytest

from pushlane import BadInput, Settings
from pushlane.backends.backend import Backend, connect
from pushlane.core.names import DEAD_LANE, dead_lane, own_lane
from pushlane.core.push import DeadPush, Push, encode, encode_dead
from pushlane.core.task import Level, State, Task, now_ms
from pushlane.model.access import Access, Role
from pushlane.model.recipients import scope_of
from pushlane.operations.counting import COUNTED
from pushlane.operations.dead import ListDead
from pushlane.operations.doing import do
from pushlane.operations.previewing import AppliedView, Apply, Preview, PreviewView
from pushlane.operations.processes import ListAudit
from pushlane.operations.recipients import CountSuppressions, Suppress
from pushlane.operations.session import Caller
from pushlane.util.errors import NotAllowed, PreviewChanged, UnknownTask
from tests.operations.test_previewing import busy

ADMIN = Caller("ada", "cli")
WHOM = "bob@example.org"


def caller(role: Role, *apps: str, name: str = "ada") -> Caller:
    return Caller(name, "http", Access(role, frozenset(apps) or None))


async def bury(
    backend: Backend, task: str, count: int, app: str = "shop", *, first: int = 1, **fields: Any
) -> None:
    """Have a task with so many dead pushes, or so many more of it from `first` on."""
    if first == 1:
        default = {"lane": own_lane(task), "total": count, "created_at_ms": now_ms()}
        await backend.registry.add(
            Task(id=task, level=Level.HIGH, app=app, **{**default, **fields})
        )
        await backend.broker.open_lane(dead_lane(task))
    bodies = [
        encode_dead(DeadPush(task, seq, 5, "HTTP 410", now_ms(), encode(Push(task, seq, WHOM))))
        for seq in range(first, first + count)
    ]
    await backend.broker.publish(dead_lane(task), bodies)


async def previewed(
    backend: Backend, operation: str, who: Caller = ADMIN, **parameters: Any
) -> PreviewView:
    asked = Preview(operation=operation, parameters=parameters)
    return await do(backend, Settings(), who, asked)


async def applied(backend: Backend, view: PreviewView, who: Caller = ADMIN) -> AppliedView:
    return await do(backend, Settings(), who, Apply(token=view.token))


def told(view: PreviewView) -> list[str]:
    return [one.told for one in view.counts]


async def test_a_retry_is_counted_by_task_and_done_as_shown(settings: Settings) -> None:
    async with connect(settings) as backend:
        await bury(backend, "a", 12)
        await bury(backend, "b", 1)
        await bury(backend, "late", 2, expires_at_ms=now_ms() - 1)
        await backend.broker.open_lane(DEAD_LANE)
        await backend.broker.publish(DEAD_LANE, [b"no push"])
        view = await previewed(backend, "retry-dead", all_there_are=True)
        left = (await do(backend, settings, ADMIN, ListDead(limit=0))).dead
        done = await applied(backend, view)
        audit = await do(backend, settings, ADMIN, ListAudit())
        after = (await do(backend, settings, ADMIN, ListDead(limit=0))).dead

    assert told(view)[0] == "retries 12 dead pushes of task a"
    assert {*told(view)[1:]} == {
        "leaves 2 dead pushes of task late: task late has expired: none would be sent; purge them",
        "retries 1 dead push of task b",
        "leaves 1 dead message that is not a push: they belong to no task: they can only be purged",
    }
    assert (len(left), len(after)) == (16, 3)
    assert done.operation == "retry-dead"
    assert {(one.operation, one.subject) for one in audit} == {
        ("retry-dead", "task/a"),
        ("retry-dead", "task/b"),
    }


async def test_a_limit_chooses_those_that_the_change_itself_chooses(settings: Settings) -> None:
    async with connect(settings) as backend:
        for task in ("c", "a", "b"):
            await bury(backend, task, 2)
        view = await previewed(backend, "purge-dead", all_there_are=True, limit=3)
        await applied(backend, view)
        left = (await do(backend, settings, ADMIN, ListDead(limit=0))).dead

    assert told(view) == ["purges 2 dead pushes of task a", "purges 1 dead push of task b"]
    assert [one.push for one in left] == ["b-2", "c-1", "c-2"]


@pytest.mark.parametrize("operation", ["retry-dead", "purge-dead"])
async def test_dead_pushes_that_grew_by_more_than_a_fifth_are_previewed_again(
    settings: Settings, operation: str
) -> None:
    async with connect(settings) as backend:
        await bury(backend, "a", 10)
        view = await previewed(backend, operation, task="a")
        await bury(backend, "a", 3, first=11)
        with pytest.raises(PreviewChanged, match="it would change 13 now, and 10 were") as caught:
            await applied(backend, view)
        present = caught.value.present
        assert present is not None
        again = await do(backend, Settings(), ADMIN, Apply(token=present["token"]))

    assert again.operation == operation
    assert present["counts"][0]["count"] == 13


async def test_some_more_or_fewer_are_no_reason_to_refuse(settings: Settings) -> None:
    async with connect(settings) as backend:
        await bury(backend, "a", 10)
        await bury(backend, "b", 10)
        more = await previewed(backend, "retry-dead", task="a")
        fewer = await previewed(backend, "retry-dead", task="b")
        await bury(backend, "a", 2, first=11)
        await applied(backend, await previewed(backend, "purge-dead", pushes=("b-1",)))
        await applied(backend, more)
        await applied(backend, fewer)
        left = (await do(backend, settings, ADMIN, ListDead(limit=0))).dead

    assert left == []


async def test_dead_pushes_of_another_task_are_a_reason_to_refuse(settings: Settings) -> None:
    async with connect(settings) as backend:
        await bury(backend, "a", 100)
        view = await previewed(backend, "purge-dead", reason="410")
        await bury(backend, "b", 1)
        with pytest.raises(PreviewChanged, match="something of others too"):
            await applied(backend, view)
        left = (await do(backend, settings, ADMIN, ListDead(limit=0))).dead

    assert len(left) == 101


async def test_of_very_many_it_is_told_that_there_are_more(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pushlane.operations.counting.MOST_COUNTED", 5)
    async with connect(settings) as backend:
        await bury(backend, "a", 9)
        view = await previewed(backend, "purge-dead", task="a")
        some = await previewed(backend, "purge-dead", task="a", limit=3)

    assert ([one.count for one in view.counts], view.is_cut) == ([5], True)
    assert ([one.count for one in some.counts], some.is_cut) == ([3], False)


async def test_suppressions_are_counted_and_the_token_has_hashes_alone(settings: Settings) -> None:
    async with connect(settings) as backend:
        await do(backend, settings, ADMIN, Suppress(values=("carol",), app="shop"))
        view = await previewed(backend, "suppress", values=(WHOM, "carol", "dan", " "), app="shop")
        before = await do(backend, settings, ADMIN, CountSuppressions())
        done = await applied(backend, view)
        [added, _] = await do(backend, settings, ADMIN, ListAudit())
        gone = await previewed(backend, "unsuppress", values=(WHOM, "erin"), app="shop")
        await applied(backend, gone)
        after = await do(backend, settings, ADMIN, CountSuppressions())

    assert told(view) == [
        "suppresses 2 recipients (app/shop)",
        "leaves 1 recipient, which is suppressed already",
        "leaves 1 value out, as no push can have such",
    ]
    assert told(gone) == [
        "suppresses 1 recipient no longer (app/shop)",
        "leaves 1 recipient, which is not suppressed there",
    ]
    assert (before[0].suppressed, after[0].suppressed) == (1, 2)
    shown = msgspec.to_builtins(done)
    assert (shown["operation"], shown["done"]["given"], shown["done"]["changed"]) == (
        "suppress",
        3,
        2,
    )
    assert (added.operation, added.subject, added.after) == (
        "suppress",
        "app/shop",
        {"suppressed": 2},
    )
    body = zlib.decompress(urlsafe_b64decode(view.token.removeprefix("pv_"))[32:])
    assert WHOM.encode() not in body
    assert WHOM not in msgspec.json.encode(view).decode()
    assert view.parameters == {"app": "shop", "sink": "", "counts_into": ""}


async def test_suppressions_that_were_taken_away_meanwhile_are_previewed_again(
    settings: Settings,
) -> None:
    async with connect(settings) as backend:
        await do(backend, settings, ADMIN, Suppress(values=("a", "b", "c")))
        view = await previewed(backend, "suppress", values=("a", "b", "c", "d"))
        await backend.suppressions.clear(scope_of())
        with pytest.raises(PreviewChanged, match="it would change 4 now, and 1 were shown"):
            await applied(backend, view)


async def test_all_of_a_scope_are_counted_before_they_are_removed(settings: Settings) -> None:
    async with connect(settings) as backend:
        await do(backend, settings, ADMIN, Suppress(values=("a", "b"), sink="fcm"))
        view = await previewed(backend, "clear-suppressions", sink="fcm")
        await do(backend, settings, ADMIN, Suppress(values=("c",), sink="fcm"))
        with pytest.raises(PreviewChanged, match="it would change 3 now"):
            await applied(backend, view)

    assert told(view) == ["removes 2 suppressions (sink/fcm)"]


async def test_a_token_of_an_app_counts_only_its_own(settings: Settings) -> None:
    shop = caller(Role.OPERATOR, "shop")
    async with connect(settings) as backend:
        await bury(backend, "a", 3)
        await bury(backend, "n", 5, app="news")
        await do(backend, settings, ADMIN, Suppress(values=(WHOM,), app="news"))
        view = await previewed(backend, "retry-dead", shop, task="a")
        ours = await previewed(backend, "suppress", shop, values=(WHOM,), app="shop")

        assert told(view) == ["retries 3 dead pushes of task a"]
        assert told(ours) == ["suppresses 1 recipient (app/shop)"]
        with pytest.raises(UnknownTask):
            await previewed(backend, "purge-dead", shop, task="n")
        with pytest.raises(BadInput, match="name a task of shop: you see no others"):
            await previewed(backend, "retry-dead", shop, all_there_are=True)
        with pytest.raises(NotAllowed, match="name your app"):
            await previewed(backend, "suppress", shop, values=(WHOM,))


@pytest.mark.parametrize(
    ("operation", "parameters"),
    [
        ("retry-dead", {"task": "a"}),
        ("purge-dead", {"task": "a"}),
        ("suppress", {"values": [WHOM]}),
        ("unsuppress", {"values": [WHOM]}),
        ("clear-suppressions", {}),
    ],
)
async def test_who_only_looks_may_count_and_not_apply(
    settings: Settings, operation: str, parameters: dict[str, Any]
) -> None:
    viewer, submitter = caller(Role.VIEWER), caller(Role.SUBMITTER)
    async with connect(settings) as backend:
        await bury(backend, "a", 1)
        view = await previewed(backend, operation, viewer, **parameters)
        with pytest.raises(NotAllowed, match="apply needs submitter"):
            await applied(backend, view, viewer)
        with pytest.raises(NotAllowed, match=f"{operation} needs operator"):
            await applied(backend, view, submitter)

    assert view.counts


async def test_it_refuses_what_the_change_would(settings: Settings) -> None:
    async with connect(settings) as backend:
        with pytest.raises(BadInput, match="say which dead pushes"):
            await previewed(backend, "retry-dead")
        with pytest.raises(BadInput, match="10,001 values are too many at once"):
            await previewed(backend, "suppress", values=("a",) * 10_001)
        with pytest.raises(BadInput, match="Expected `str`") as caught:
            await previewed(backend, "suppress", values=[WHOM, 7])

    assert WHOM not in str(caught.value)


async def test_limits_of_a_sink_say_what_goes_through_it() -> None:
    async with busy() as backend:
        view = await previewed(backend, "set-limit", subject="sink/default", in_flight=5)
        await backend.registry.add(
            Task(id="o", level=Level.LOW, lane=own_lane("o"), state=State.RUNNING)
        )
        least = await previewed(backend, "clear-limit", subject="sink/default")
        done = await applied(backend, view)

    assert told(view) == ["concerns 3 tasks with 3,000 pushes left at sink/default"]
    assert told(least) == ["concerns 4 tasks with at least 3,000 pushes left at sink/default"]
    assert msgspec.to_builtins(done)["done"]["limit"] == {"in_flight": 5}


def test_what_is_counted_is_what_moves_no_end() -> None:
    assert all(kind.changes for kind in COUNTED)
