"""What is applied over HTTP is what was looked at, by who looked, while that is no worse."""

from __future__ import annotations

import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from pushlane import Settings
from pushlane.core.names import dead_lane, own_lane
from pushlane.core.push import DeadPush, Push, encode, encode_dead
from pushlane.core.task import Level, State, Task, now_ms
from pushlane.operations.problems import Problem, error_of
from pushlane.util.errors import PreviewChanged
from tests.door.asking import Answer, Asking, asking


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Asking]:
    """A server with a task `a` of `shop` that runs and has two dead pushes."""
    async with asking(settings) as http:
        running = {"state": State.RUNNING, "total": 9, "lane": own_lane("a"), "app": "shop"}
        await http.backend.registry.add(Task(id="a", level=Level.HIGH, **running))
        await http.backend.broker.open_lane(dead_lane("a"))
        await bury(http, 1, 2)
        yield http


async def bury(ask: Asking, *numbers: int) -> None:
    died = [
        encode_dead(DeadPush("a", seq, 5, "HTTP 410", now_ms(), encode(Push("a", seq, "ada"))))
        for seq in numbers
    ]
    await ask.backend.broker.publish(dead_lane("a"), died)


async def previewed(
    ask: Asking, operation: str, parameters: dict[str, Any], token: str | None = None
) -> str:
    asked = {"operation": operation, "parameters": parameters}
    answer = await ask("POST", "/v1/preview", asked, token=token)
    assert answer.status == 200, answer.body
    found: str = answer.json["token"]
    return found


async def applied(ask: Asking, preview: str, token: str | None = None) -> Answer:
    return await ask("POST", "/v1/apply", {"token": preview}, token=token)


async def state(ask: Asking) -> State:
    return (await ask.backend.registry.get("a")).state


async def test_a_token_does_the_operation_that_was_previewed_and_no_other(
    settings: Settings,
) -> None:
    async with serving(settings) as ask:
        preview = await previewed(ask, "pause-task", {"task": "a"})
        raw = urlsafe_b64decode(preview.removeprefix("pv_"))
        said = msgspec.msgpack.decode(zlib.decompress(raw[32:]))
        forged = zlib.compress(msgspec.msgpack.encode({**said, "operation": "cancel-task"}))
        other = "pv_" + urlsafe_b64encode(raw[:32] + forged).decode()

        refused = await applied(ask, other)
        no_preview = await applied(ask, ask.token)
        done = await applied(ask, preview)

        for one in (refused, no_preview):
            assert one.status == 400
            assert "this is not the token of a preview, or it is incomplete" in one.json["detail"]
        assert (done.status, done.json["operation"]) == (200, "pause-task")
        assert await state(ask) is State.PAUSED


@pytest.mark.parametrize(
    ("operation", "parameters"),
    [("pause-task", {"task": "a"}), ("purge-dead", {"task": "a"})],
)
async def test_an_old_one_is_refused(
    settings: Settings,
    operation: str,
    parameters: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(settings) as ask:
        preview = await previewed(ask, operation, parameters)
        later_ms = now_ms() + 601_000
        monkeypatch.setattr("pushlane.operations.previewing.now_ms", lambda: later_ms)

        refused = await applied(ask, preview)

        assert refused.status == 400
        assert refused.json["detail"] == (
            "the preview is over ten minutes old: preview the change again"
        )
        assert await state(ask) is State.RUNNING


async def test_one_whose_task_has_ended_is_refused(settings: Settings) -> None:
    async with serving(settings) as ask:
        preview = await previewed(ask, "set-quota", {"task": "a", "quota": 5})
        await ask("POST", "/v1/tasks/a/cancel")

        refused = await applied(ask, preview)

        assert refused.status == 409
        assert "task a is cancelled" in refused.json["detail"]


async def test_one_that_somebody_has_overtaken_is_refused_with_the_preview_of_now(
    settings: Settings,
) -> None:
    async with serving(settings) as ask:
        preview = await previewed(ask, "set-levels", {"weights": "1:1:1"})
        changed = await ask("PUT", "/v1/levels", {"weights": "5:3:2"}, headers={"if-match": "*"})
        assert changed.status == 200, changed.body

        refused = await applied(ask, preview)
        again = await applied(ask, refused.json["present"]["token"])

        read = error_of(msgspec.json.decode(refused.body, type=Problem))  # as a client does
        assert isinstance(read, PreviewChanged)
        assert read.present == refused.json["present"]
        assert (refused.status, refused.json["type"]) == (409, "urn:pushlane:preview-changed")
        assert "somebody has changed the same" in refused.json["detail"]
        assert (again.status, again.json["done"]["high"]["weight"]) == (200, 1)


async def test_counts_that_grew_are_refused_with_those_of_now(settings: Settings) -> None:
    async with serving(settings) as ask:
        preview = await previewed(ask, "retry-dead", {"task": "a"})
        await bury(ask, 3)

        refused = await applied(ask, preview)
        again = await applied(ask, refused.json["present"]["token"])

        assert refused.status == 409
        assert "it would change 3 now, and 2 were shown" in refused.json["detail"]
        assert [one["count"] for one in refused.json["present"]["counts"]] == [3]
        assert [one["pushes"] for one in again.json["done"]] == [3]


async def test_who_may_not_make_the_change_may_not_apply_it(settings: Settings) -> None:
    async with serving(settings) as ask:
        viewer, submitter = await ask.made("viewer"), await ask.made("submitter")
        other = await ask.made("operator")
        seen = await previewed(ask, "pause-task", {"task": "a"}, viewer)
        purge = await previewed(ask, "purge-dead", {"task": "a"}, submitter)

        by_viewer = await applied(ask, seen, viewer)
        by_submitter = await applied(ask, purge, submitter)
        by_other = await applied(ask, seen, other)

        assert [one.status for one in (by_viewer, by_submitter, by_other)] == [403, 403, 403]
        assert "apply needs submitter" in by_viewer.json["detail"]
        assert "purge-dead needs operator" in by_submitter.json["detail"]
        assert "the preview was made by" in by_other.json["detail"]
        assert await state(ask) is State.RUNNING
