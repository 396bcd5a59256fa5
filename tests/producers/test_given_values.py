"""Whatever a program gives to the SDK works and is read back, or is refused as BadInput."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import fields
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pushlane.backends.backend import connect
from pushlane.client.client import Client
from pushlane.core.errors import BadInput, InvalidChange, TaskConflict
from pushlane.core.task import Level, Task, Weights
from pushlane.model.limits import Limit, app_share
from pushlane.model.task_bytes import decode, encode
from pushlane.producers.device_events import PushEvent
from pushlane.producers.outbox.store import ProducerOptions
from pushlane.producers.producer import Producer
from pushlane.producers.request import SubmitRequest
from pushlane.producers.task_builder import new_task
from pushlane.settings import Settings
from pushlane.util.errors import DamagedRecord, UnknownTask

ROWS = [{"recipient": "a", "name": "Ann"}]
_ODD: tuple[Any, ...] = (
    *(5 / 2, 3.0, Fraction(5, 2), Fraction(4, 1), Decimal(3), Decimal("2.5"), math.nan, math.inf),
    *(True, None, "3", "2.5", "HIGH", "urgent", Level.HIGH, "2h", "", "name", "\ud800", b"x"),
    *([], ["name"], ("default",), {}, {"low": 2}, {"low": 2.5}, object(), timedelta(hours=1)),
    *(datetime(2033, 1, 1).astimezone(), 10**30, -(10**5_000), -1, 0, 1, 3, Path("x"), complex(1)),
)
VALUES = st.one_of(
    st.sampled_from(_ODD),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.booleans(),
    st.lists(st.text(max_size=3), max_size=3),
)
QUICK = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def where(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path)


async def tried(method: Callable[..., Awaitable[Any]], *values: Any, **named: Any) -> Any:
    """Return what came of it; None when it was refused. Any other error is passed on."""
    try:
        return await method(*values, **named)
    except (BadInput, InvalidChange, TaskConflict, UnknownTask):
        return None


@given(name=st.sampled_from([field.name for field in fields(SubmitRequest)]), value=VALUES)
@settings(max_examples=300, deadline=None)
def test_a_task_of_whatever_options_can_be_stored_or_is_refused(name: str, value: Any) -> None:
    options = {"source": ROWS, "level": "medium", "title": "Hi", name: value}
    try:
        task = new_task(SubmitRequest(**options), Settings())
    except BadInput:
        return
    assert Level(task.level) in Level
    assert isinstance(task.quota, int)
    assert read_back(task) == task


def read_back(task: Task) -> Task:
    return decode(task.id, encode(task))


@pytest.mark.parametrize("name", [field.name for field in fields(SubmitRequest)])
async def test_a_submit_of_whatever_options_leaves_only_tasks_that_can_be_read(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with Client(where(tmp_path)) as client:

        async def submit(value: Any) -> Any:
            options = {"source": ROWS, "level": "medium", "title": "Hi", name: value}
            return await client.submit(SubmitRequest(**options))

        for value in _ODD:
            done = await tried(submit, value)
            assert done is None or (await client.task(done.task.id)).key == done.task.key


@pytest.mark.parametrize("name", ["set_quota", "promote", "demote", "pause", "replay"])
async def test_a_change_to_whatever_value_is_kept_or_refused(tmp_path: Path, name: str) -> None:
    async with Client(where(tmp_path)) as client:
        task = (await client.submit(SubmitRequest(source=ROWS, level="medium", title="Hi"))).task
        for value in _ODD:
            await tried(getattr(client, name), task.id, value)
            assert (await client.task(task.id)).id == task.id


@pytest.mark.parametrize("name", ["task", "cancel", "resume", "clone", "tasks"])
async def test_whatever_is_given_for_a_task_is_found_or_refused(tmp_path: Path, name: str) -> None:
    async with Client(where(tmp_path)) as client:
        for value in _ODD:
            await tried(getattr(client, name), value)


async def test_whatever_limit_is_given_all_limits_can_be_read(tmp_path: Path) -> None:
    async with Client(where(tmp_path)) as client:
        for value in _ODD:
            for name in Limit.__struct_fields__:
                await tried(client.set_limit, "app/a", **{name: value})
            await tried(client.set_limit, value, total=3)
            await tried(client.set_app_quota, "b", value)
            await tried(client.set_app_quota, value, 2)
            await tried(client.set_app_quota, "b", high_part=value)
            await client.limits()


async def test_whatever_levels_are_given_they_can_be_read(tmp_path: Path) -> None:
    async with Client(where(tmp_path)) as client:
        for value in (*_ODD, "6:3:1"):
            await tried(client.set_levels, value)
            await tried(client.set_levels, Weights(high=value))
            assert sum((await client.weights()).by_level().values()) > 0


@given(value=VALUES)
@QUICK
def test_whatever_makes_a_producer_an_event_or_bounds_is_taken_or_refused(
    tmp_path: Path, value: Any
) -> None:
    producer: dict[str, Any] = {"name": "p", "settings": where(tmp_path)}
    for name in ("name", "level", "app", "quota", "delivery", "on_unknown", "sink", "options"):
        made(Producer, **{**producer, name: value})
    for field in fields(ProducerOptions):
        made(ProducerOptions, **{field.name: value})
    event = {"push_id": "a-1", "event": "opened", "at_ms": 1_764_000_000_000}
    for field in fields(PushEvent):
        made(PushEvent, **{**event, field.name: value})


def made(kind: Callable[..., Any], **values: Any) -> None:
    with suppress(BadInput):
        kind(**values)


async def test_what_has_one_meaning_is_taken(tmp_path: Path) -> None:
    rows = tmp_path / "sale.csv"
    rows.write_text("recipient\na\n")
    start = datetime(2033, 1, 1).astimezone()
    async with Client(where(tmp_path / "store")) as client:
        request = SubmitRequest(
            source=str(rows),
            level="HIGH",
            title="Hi",
            quota="3",
            max_attempts="7",
            retention_s="2h",
            not_before_ms=start,
            expires_at_ms=start + timedelta(hours=1),
            delivery="Once",
        )
        task = (await client.submit(request)).task

        assert (task.level, task.quota, task.max_attempts) == (Level.HIGH, 3, 7)
        assert (task.name, task.retention_s, task.delivery) == ("sale", 7200, "once")
        assert task.expires_at_ms - task.not_before_ms == 3_600_000
        assert task.not_before_ms == start.timestamp() * 1000
        assert (await client.set_quota(task.id, "4")).quota == 4
        assert (await client.demote(task.id, "MEDIUM")).level is Level.MEDIUM
        assert [one.id for one in await client.tasks("scheduled")] == [task.id]
        assert (await client.set_app_quota("shop", "5")).quota == 5


async def test_a_quota_that_is_not_whole_changes_nothing(tmp_path: Path) -> None:
    async with Client(where(tmp_path)) as client:
        task = (await client.submit(SubmitRequest(source=ROWS, level="high", title="Hi"))).task

        for quota in (5 / 2, True):
            with pytest.raises(
                BadInput, match=r"quota \S+ is not a whole number; use one from 1 to"
            ):
                await client.set_quota(task.id, quota)
            with pytest.raises(BadInput, match=r"quota .* of app 'shop' is not a whole number"):
                await client.set_app_quota("shop", quota)
        with pytest.raises(BadInput, match="unknown level 'urgent'; use high, medium, low"):
            await client.promote(task.id, "urgent")

        kept = await client.task(task.id)
        assert (kept.version, kept.quota, kept.level) == (task.version, 1, Level.HIGH)


async def test_a_damaged_limit_is_refused_with_the_way_out(tmp_path: Path) -> None:
    async with connect(where(tmp_path)) as backend:
        await backend.documents.put("limit", "app/shop", b'{"quota": 2.5}', None)

        with pytest.raises(DamagedRecord, match="pushlane limit app/shop --none"):
            await app_share(backend.documents, "shop")
