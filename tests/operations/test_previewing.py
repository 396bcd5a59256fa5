"""What a change would do is told before it counts, and only what was told is done."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from pushlane import BadInput, MemoryBackend, Settings
from pushlane.backends.backend import Backend
from pushlane.backends.ports import TaskQuery
from pushlane.core.errors import InvalidChange, PushlaneError
from pushlane.core.names import own_lane
from pushlane.core.push import Kind
from pushlane.core.task import Finished, Level, State, Task, now_ms
from pushlane.model.access import Access, Role
from pushlane.model.load import SinkLoad
from pushlane.model.presence import Process, Resting, ServedSink
from pushlane.operations.doing import do
from pushlane.operations.previewing import PREVIEWED, Apply, Preview, PreviewView
from pushlane.operations.processes import ListAudit
from pushlane.operations.session import Caller
from pushlane.operations.shares import GetLevels, SetLevels
from pushlane.operations.tasks import CancelTask, GetTask, SetQuota
from pushlane.util.errors import NotAllowed, NotFound, PreviewChanged, UnknownTask

ADMIN = Caller("ada", "cli")
SETTINGS = Settings()


def caller(role: Role, *apps: str, name: str = "ada") -> Caller:
    return Caller(name, "http", Access(role, frozenset(apps) or None))


@asynccontextmanager
async def busy(resting: Resting | None = None) -> AsyncIterator[Backend]:
    """Tasks of 1,000 pushes at a sink of 100/s: `a` and `b` of two apps at high, `c` at low."""
    async with MemoryBackend().connect() as backend:
        for task_id, level, app in (
            ("a", Level.HIGH, "shop"),
            ("b", Level.HIGH, "news"),
            ("c", Level.LOW, "shop"),
        ):
            await add(backend, task_id, level, app)
        await announce(backend, resting)
        yield backend


async def announce(backend: Backend, resting: Resting | None = None) -> None:
    sink = ServedSink(
        name="default",
        slots=10,
        in_flight=10,
        delivery_s=0.1,
        delivered_per_s={"high": 100.0},
        resting=resting,
    )
    process = Process(
        id="d", kind="dispatcher", pid=7, version="1", serves=("default",), served=(sink,)
    )
    await backend.presence.announce(process, 60)


async def add(backend: Backend, task_id: str, level: Level, app: str, **fields: Any) -> None:
    default = {"state": State.RUNNING, "total": 1_000, "lane": own_lane(task_id)}
    await backend.registry.add(
        Task(id=task_id, level=level, app=app, name=f"of {app}", **{**default, **fields})
    )


async def previewed(
    backend: Backend, operation: str, who: Caller = ADMIN, **parameters: Any
) -> PreviewView:
    return await do(backend, SETTINGS, who, Preview(operation=operation, parameters=parameters))


def seconds(view: PreviewView) -> dict[str, tuple[float | None, float | None]]:
    """When each task that moves ends, before and after, in seconds from the preview."""
    at_ms = view.valid_until_ms - 600_000
    return {
        one.task: tuple(
            None if end is None else (end - at_ms) / 1000 for end in (one.before_ms, one.after_ms)
        )
        for one in view.ends
    }


async def test_a_preview_of_weights_tells_who_ends_when_and_whose_share_moves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_ms = now_ms()
    for module in ("operations.previewing", "diagnosis.look"):
        monkeypatch.setattr(f"pushlane.{module}.now_ms", lambda: at_ms)
    async with busy() as backend:
        view = await previewed(backend, "set-levels", weights="1:1:1")

        # 6:1 gives a and b 42.9/s each, c 14.3/s: 23.3 s, then c alone. 1:1 gives 25, 25 and 50.
        assert seconds(view) == {
            "a": pytest.approx((23.3, 30.0), abs=0.1),
            "b": pytest.approx((23.3, 30.0), abs=0.1),
            "c": pytest.approx((30.0, 20.0), abs=0.1),
        }
        assert (view.later, view.sooner, view.untold, view.resting) == (2, 1, 0, [])
        assert [(one.level, one.app) for one in view.parts[:2]] == [("high", None), ("low", None)]
        assert (await do(backend, SETTINGS, ADMIN, GetLevels())).high.weight == 6


@pytest.mark.parametrize(
    ("operation", "parameters", "moved"),
    [
        ("set-quota", {"task": "a", "quota": 5}, set()),  # alone in its app: it moves nothing
        ("set-app-quota", {"app": "shop", "quota": 3}, {"a"}),  # b ends with all of high as before
        ("promote-task", {"task": "c", "level": "high"}, {"a", "b"}),
        ("pause-task", {"task": "a"}, {"a", "b", "c"}),
        ("cancel-task", {"task": "a"}, {"a", "b", "c"}),
        ("set-limit", {"subject": "a", "rate_per_s": "10/s"}, {"a", "b", "c"}),
        ("set-limit", {"subject": "sink/default", "rate_per_s": "50/s"}, {"a", "b", "c"}),
    ],
)
async def test_each_steering_change_has_one_and_applies(
    operation: str, parameters: dict[str, Any], moved: set[str]
) -> None:
    async with busy() as backend:
        view = await previewed(backend, operation, **parameters)
        before = await backend.registry.get("a")
        applied = await do(backend, SETTINGS, ADMIN, Apply(token=view.token))
        audit = await do(backend, SETTINGS, ADMIN, ListAudit())

        assert {one.task for one in view.ends} == moved
        assert applied.operation == operation
        assert [one.operation for one in audit] == [operation]
        assert (await backend.registry.get("a") != before) == (parameters.get("task") == "a")


async def test_a_preview_refuses_what_the_change_would() -> None:
    async with busy() as backend:
        with pytest.raises(BadInput, match="quota 0 is not from 1"):
            await previewed(backend, "set-quota", task="a", quota=0)
        with pytest.raises(UnknownTask):
            await previewed(backend, "set-quota", task="nobody", quota=2)
        await do(backend, SETTINGS, ADMIN, CancelTask(task="c"))
        with pytest.raises(InvalidChange):
            await previewed(backend, "pause-task", task="c")
        with pytest.raises(BadInput, match="'forget-task' cannot be previewed; these can"):
            await previewed(backend, "forget-task", task="a")
        with pytest.raises(BadInput, match="it has task, quota"):
            await previewed(backend, "set-quota", task="a", share=2)


async def test_an_expiry_that_it_misses_or_keeps_is_told() -> None:
    async with busy() as backend:
        soon_ms = now_ms() + 25_000
        await add(backend, "tight", Level.HIGH, "tight", expires_at_ms=soon_ms, total=400)
        view = await previewed(backend, "set-limit", subject="tight", rate_per_s="2/s")
        kept = await previewed(backend, "pause-task", task="tight")

        first = view.ends[0]
        assert (first.task, first.expiry) == ("tight", "missed")
        assert (view.missed, view.kept) == (1, 0)
        assert kept.missed == 1  # one that is paused ends no more


@pytest.mark.parametrize("operation", ["cancel-task", "pause-task"])
async def test_a_task_that_the_change_stops_does_not_end_later(operation: str) -> None:
    async with busy() as backend:
        view = await previewed(backend, operation, task="c")

        assert (view.later, view.sooner) == (0, 2)
        assert [one.after_ms for one in view.ends if one.task == "c"] == [None]


async def test_a_task_that_is_cancelled_misses_no_expiry() -> None:
    async with busy() as backend:
        await add(backend, "due", Level.HIGH, "due", expires_at_ms=now_ms() + 600_000)
        view = await previewed(backend, "cancel-task", task="due")

        assert (view.missed, {one.expiry for one in view.ends}) == (0, {None})


async def test_a_change_that_somebody_else_has_made_meanwhile_is_refused() -> None:
    async with busy() as backend:
        view = await previewed(backend, "set-levels", weights="1:1:1")
        await do(backend, SETTINGS, ADMIN, SetLevels(weights="5:3:2"))

        with pytest.raises(PreviewChanged, match="somebody has changed the same") as caught:
            await do(backend, SETTINGS, ADMIN, Apply(token=view.token))

        assert caught.value.present is not None
        assert caught.value.present["operation"] == "set-levels"
        assert (await do(backend, SETTINGS, ADMIN, GetLevels())).high.weight == 5


async def test_what_would_end_much_later_than_was_shown_is_refused_and_less_backlog_is_not() -> (
    None
):
    async with busy() as backend:
        view = await previewed(backend, "set-levels", weights="1:1:1")
        fewer = await previewed(backend, "set-app-quota", app="news", quota=9)
        await backend.registry.record([finished("a", 500)])
        await do(backend, SETTINGS, ADMIN, Apply(token=fewer.token))
        for number in range(20):
            await add(backend, f"large-{number}", Level.LOW, f"other-{number}", total=50_000)

        with pytest.raises(PreviewChanged, match=r"task c would end .* later than was shown"):
            await do(backend, SETTINGS, ADMIN, Apply(token=view.token))


async def test_another_task_that_would_miss_its_expiry_is_a_reason_to_refuse() -> None:
    async with busy() as backend:
        view = await previewed(backend, "set-app-quota", app="news", quota=9)
        await add(backend, "new", Level.HIGH, "shop", expires_at_ms=now_ms() + 5_000)

        with pytest.raises(PreviewChanged, match="another task would miss its expiry"):
            await do(backend, SETTINGS, ADMIN, Apply(token=view.token))


async def test_of_very_many_that_miss_their_expiry_some_may_end_and_none_come() -> None:
    async with busy() as backend:
        soon_ms = now_ms() + 60_000
        for number in range(520):
            await add(backend, f"late-{number}", Level.LOW, "late", expires_at_ms=soon_ms)
        view = await previewed(backend, "set-app-quota", app="news", quota=9)
        other = await previewed(backend, "set-app-quota", app="shop", quota=9)
        await do(backend, SETTINGS, ADMIN, CancelTask(task="late-250"))
        await do(backend, SETTINGS, ADMIN, Apply(token=view.token))
        for number in range(9):
            await add(backend, f"new-{number}", Level.LOW, "late", expires_at_ms=soon_ms)

        with pytest.raises(PreviewChanged, match="another task would miss its expiry"):
            await do(backend, SETTINGS, ADMIN, Apply(token=other.token))


async def test_a_preview_costs_no_look_at_all_tasks_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    real = SinkLoad.per_s
    monkeypatch.setattr(SinkLoad, "per_s", lambda load: asked.append(load) or real(load))
    async with busy() as backend:
        for number in range(100):
            await add(backend, f"more-{number}", Level.LOW, "more")
        await previewed(backend, "set-levels", weights="1:1:1")

    assert len(asked) < 10


async def test_a_sink_that_rests_since_is_a_reason_to_refuse() -> None:
    async with busy() as backend:
        view = await previewed(backend, "set-app-quota", app="news", quota=9)
        why = Resting("sink webhook (open)", now_ms(), "no connection", now_ms() + 4_000)
        await announce(backend, why)

        with pytest.raises(PreviewChanged, match=r"other sinks rest now \(default\)"):
            await do(backend, SETTINGS, ADMIN, Apply(token=view.token))


async def test_a_token_that_is_old_cut_or_of_somebody_else_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with busy() as backend:
        token = (await previewed(backend, "set-levels", weights="1:1:1")).token
        assert token.startswith("pv_")
        for cut in ("", "abc", token[:-8], token[:-2] + "AA"):
            with pytest.raises(BadInput, match="not the token of a preview, or it is incomplete"):
                await do(backend, SETTINGS, ADMIN, Apply(token=cut))
        with pytest.raises(NotAllowed, match="made by ada; you are bob"):
            await do(backend, SETTINGS, caller(Role.ADMIN, name="bob"), Apply(token=token))
        later_ms = now_ms() + 601_000
        monkeypatch.setattr("pushlane.operations.previewing.now_ms", lambda: later_ms)
        with pytest.raises(BadInput, match="over ten minutes old"):
            await do(backend, SETTINGS, ADMIN, Apply(token=token))


async def test_a_task_that_has_ended_meanwhile_is_told() -> None:
    async with busy() as backend:
        token = (await previewed(backend, "set-quota", task="a", quota=5)).token
        await do(backend, SETTINGS, ADMIN, CancelTask(task="a"))

        with pytest.raises(PushlaneError, match="task a is cancelled"):
            await do(backend, SETTINGS, ADMIN, Apply(token=token))


async def test_who_only_looks_may_preview_and_not_apply() -> None:
    async with busy() as backend:
        viewer, submitter = caller(Role.VIEWER), caller(Role.SUBMITTER)
        seen = await previewed(backend, "set-quota", viewer, task="a", quota=5)
        made = await previewed(backend, "set-quota", submitter, task="a", quota=5)
        pause = await previewed(backend, "pause-task", submitter, task="a")

        with pytest.raises(NotAllowed, match="apply needs submitter"):
            await do(backend, SETTINGS, viewer, Apply(token=seen.token))
        with pytest.raises(NotAllowed, match="set-quota needs operator"):
            await do(backend, SETTINGS, submitter, Apply(token=made.token))
        await do(backend, SETTINGS, submitter, Apply(token=pause.token))
        assert (await do(backend, SETTINGS, ADMIN, GetTask(task="a"))).state == State.PAUSED


async def test_a_token_of_an_app_sees_others_as_sums_alone() -> None:
    async with busy() as backend:
        shop = caller(Role.OPERATOR, "shop")
        view = await previewed(backend, "promote-task", shop, task="c", level="high")

        assert {one.task for one in view.ends} == {"a"}
        assert {one.app for one in view.parts} <= {None, "shop"}
        assert view.others is not None
        assert (view.others.later, view.others.sooner) == (0, 1)
        assert b"news" not in msgspec.json.encode(view)
        with pytest.raises(NotAllowed, match="set-levels is about all apps"):
            await previewed(backend, "set-levels", shop, weights="1:1:1")
        with pytest.raises(UnknownTask):
            await previewed(backend, "set-quota", shop, task="b", quota=2)


async def test_ends_that_nobody_can_tell_are_counted() -> None:
    async with busy() as backend:
        await add(backend, "open", Level.HIGH, "shop", total=None)
        await add(backend, "starts", Level.HIGH, "shop", start_column="at")
        soon = datetime.now(UTC) + timedelta(minutes=30)
        quiet = f"{soon:%H:%M}-{soon + timedelta(hours=2):%H:%M}"
        await add(backend, "quiet", Level.LOW, "shop", quiet=quiet, total=500_000)
        view = await previewed(backend, "pause-task", task="b")

        assert view.untold == 3
        assert {one.task for one in view.ends} <= {"a", "b", "c"}


async def test_shares_are_told_where_no_end_can_be() -> None:
    async with MemoryBackend().connect() as backend:
        for task_id, level in (("a", Level.HIGH), ("c", Level.LOW)):
            await add(backend, task_id, level, "shop", total=None)
        await announce(backend)
        view = await previewed(backend, "set-levels", weights="1:1:1")

        assert (view.ends, view.untold) == ([], 2)
        assert [(one.level, one.before, one.after) for one in view.parts[:2]] == [
            ("high", pytest.approx(6 / 7, abs=1e-4), 0.5),
            ("low", pytest.approx(1 / 7, abs=1e-4), 0.5),
        ]


def test_what_can_be_previewed_is_what_steers() -> None:
    assert SetQuota in PREVIEWED
    assert all(kind.changes for kind in PREVIEWED)


def finished(task_id: str, count: int) -> Finished:
    return Finished(task_id, Kind.DELIVERED, [*range(1, count + 1)], "")


async def test_a_task_that_would_be_made_is_told_with_whom_it_puts_off() -> None:
    async with busy() as backend:
        before = await backend.registry.page(TaskQuery())
        view = await previewed(backend, "create-task", level="high", app="news", expects=1_000)
        ends = seconds(view)
        after = await backend.registry.page(TaskQuery())

        # high has 85.7/s, half for an app: `a` has 42.9/s for 23.3 s, the two of news half of that,
        # and 42.9/s each for the 500 that are left
        assert view.ends[0].task == "new"
        assert ends["new"][0] is None
        assert ends["new"][1] == ends["b"][1]
        assert ends["b"] == (pytest.approx(23.3, abs=0.1), pytest.approx(35.0, abs=0.1))
        assert view.later >= 1
        assert view.sooner == 0
        assert after == before


async def test_a_new_task_at_a_sink_without_others_has_an_end_and_what_holds_it_counts() -> None:
    async with MemoryBackend().connect() as backend:
        await announce(backend)
        alone = await previewed(backend, "create-task", level="low", expects=1_000)
        slow = await previewed(backend, "create-task", level="low", expects=1_000, rate_per_s=10)
        paused = await previewed(backend, "create-task", level="low", expects=1_000, paused=True)
        late = await previewed(
            backend, "create-task", level="low", expects=1_000, expires_at_ms=now_ms() + 2_000
        )

    assert seconds(alone)["new"] == (None, pytest.approx(10, abs=1))
    assert seconds(slow)["new"] == (None, pytest.approx(100, abs=2))
    assert paused.ends == []
    assert (late.ends[0].expiry, late.missed, late.later, late.sooner) == ("missed", 1, 0, 0)


async def test_a_previewed_task_is_made_and_one_that_would_not_be_is_refused() -> None:
    async with busy() as backend:
        view = await previewed(backend, "create-task", level="low", app="shop", expects=10)
        done = await do(backend, SETTINGS, ADMIN, Apply(token=view.token))
        assert isinstance(done.done, dict)
        assert (await backend.registry.get(done.done["id"])).app == "shop"
        with pytest.raises(BadInput):
            await previewed(backend, "create-task", level="low", sinks=["nobody"])
        with pytest.raises(NotFound):
            await previewed(
                backend, "create-task", caller(Role.VIEWER, "shop"), level="low", app="news"
            )
