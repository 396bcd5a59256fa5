"""The public face: a program's way to submit tasks and to steer them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

import pushlane
from pushlane import Client, Level, Limit, Settings, State, SubmitRequest, Weights
from pushlane.backends.backend import connect
from pushlane.core.errors import BadInput
from pushlane.core.task import now_ms
from pushlane.model.recipients import AddressDeath, kept_hasher

ROWS = [{"recipient": f"user-{number}"} for number in range(3)]


def test_everything_public_is_there() -> None:
    missing = [name for name in pushlane.__all__ if not hasattr(pushlane, name)]

    assert missing == []


async def test_it_submits_rows_in_memory(settings: Settings) -> None:
    async with Client(settings) as client:
        result = await client.submit(SubmitRequest(source=ROWS, level=Level.HIGH, title="Hi"))

        [task] = await client.tasks()
        assert (task.id, task.total, task.state) == (result.task.id, 3, State.RUNNING)
        assert task.finished == 0


async def test_it_steers_a_task(settings: Settings) -> None:
    async with Client(settings) as client:
        result = await client.submit(SubmitRequest(source=ROWS, level=Level.LOW, title="Hi"))
        task_id = result.task.id

        assert (await client.promote(task_id, Level.HIGH)).level is Level.HIGH
        assert (await client.set_quota(task_id, 4)).quota == 4
        share = await client.set_app_quota("shop", 3, high_part=0.5)
        assert (share.quota, share.high_part) == (3, 0.5)
        assert (await client.pause(task_id, "wrong text")).reason == "wrong text"
        assert (await client.resume(task_id)).state == State.RUNNING
        assert (await client.cancel(task_id)).state == State.CANCELLED
        assert await client.tasks([State.CANCELLED]) == [await client.task(task_id)]


async def test_a_quota_gives_a_pooled_task_a_lane_of_its_own(settings: Settings) -> None:
    async with Client(settings) as client:
        result = await client.submit(SubmitRequest(source=ROWS, level=Level.LOW, title="Hi"))
        assert result.task.pooled

        given = await client.set_quota(result.task.id, 4)

        assert (given.level, given.quota) == (Level.LOW, 4)
        assert {*given.changed} == {"quota", "pooled"}
    async with connect(settings) as backend:
        assert f"task-{given.id}" in await backend.broker.lanes()


async def test_it_reschedules_a_task(settings: Settings) -> None:
    async with Client(settings) as client:
        result = await client.submit(SubmitRequest(source=ROWS, level=Level.LOW, title="Hi"))
        task_id, before_ms = result.task.id, now_ms()

        later = await client.reschedule(
            task_id, not_before_ms="1h", expires_at_ms=timedelta(hours=3), quiet="22:00-8:00"
        )

        assert not later.pooled
        assert later.not_before_ms - before_ms in range(3_600_000, 3_630_000)
        assert later.expires_at_ms - before_ms in range(10_800_000, 10_830_000)
        assert later.quiet == "22:00-08:00"
        now = await client.reschedule(task_id, not_before_ms="now", expires_at_ms=0, quiet="none")
        assert (now.not_before_ms, now.expires_at_ms, now.quiet) == (0, 0, "")
        assert now.recall_ms
        with pytest.raises(BadInput, match="nothing to change; give not_before_ms, expires_at_ms"):
            await client.reschedule(task_id)


async def test_it_shares_the_sink_anew(settings: Settings) -> None:
    async with Client(settings) as client:
        await client.set_levels("5:4:1")
        assert await client.weights() == Weights(5, 4, 1)


async def test_a_client_that_is_not_open_says_so(settings: Settings) -> None:
    with pytest.raises(pushlane.PushlaneError, match="async with"):
        await Client(settings).tasks()


async def test_an_address_that_an_app_registers_is_sent_to_again(settings: Settings) -> None:
    async with connect(settings) as backend:
        [token] = (await kept_hasher(backend.documents)).hashes(["token"])
        await backend.dead_addresses.record("fcm", [AddressDeath(token, 1, "gone")], 1)

        async with Client(settings) as client:
            assert await client.register_address("fcm", "token") is True
            assert await client.register_address("fcm", "token") is False
            with pytest.raises(pushlane.BadInput, match="say at which sink"):
                await client.register_address("", "token")
            with pytest.raises(pushlane.BadInput, match="no push can have this value"):
                await client.register_address("fcm", " ")

        assert await backend.suppressions.counts() == {}


async def test_it_limits_an_app(settings: Settings) -> None:
    async with Client(settings) as client:
        await client.set_limit("app/shop", rate_per_s=5.0, in_flight=3)
        changed = await client.set_limit("app/shop", rate_per_s=None, recipient_a_day={"all": 2})

        assert changed.limit == Limit(in_flight=3, recipient_a_day={"all": 2})
        assert await client.limits() == [replace(changed, remark=None)]

        await client.set_limit("app/shop", in_flight=None, recipient_a_day=None)
        assert await client.limits() == []
