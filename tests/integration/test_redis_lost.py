"""Redis loses everything, or comes back with an older copy, while a dispatcher runs on Pulsar."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.own_redis import OwnRedis
from tests.processes import Pushlane, Received, until

pytestmark = [pytest.mark.pulsar, pytest.mark.answers_after(5)]

PUSHES = 3_000


@pytest.fixture
def pushlane(pulsar_urls, own_redis: OwnRedis, tmp_path: Path) -> Iterator[Pushlane]:
    settings = {
        "broker": pulsar_urls.broker,
        "admin_url": pulsar_urls.admin,
        "redis_url": own_redis.url,
        "namespace": f"pushlane/t-{uuid.uuid4().hex[:12]}",
        "pool_lanes": "1",
    }
    commands = Pushlane(tmp_path, settings)
    yield commands
    commands.end_all()


def lose_all(redis: OwnRedis) -> None:
    redis.empty()


def set_back(redis: OwnRedis) -> None:
    redis.restore()


@pytest.mark.parametrize("lose", [lose_all, set_back])
def test_the_dispatcher_goes_on_and_the_task_ends(
    pushlane: Pushlane, receiver: Received, own_redis: OwnRedis, lose: Callable[[OwnRedis], None]
) -> None:
    cancelled = pushlane.submit("medium", 10)
    task = pushlane.submit("high", PUSHES)
    own_redis.save()
    pushlane("cancel", cancelled, "--yes")
    dispatching = pushlane.dispatch("--slots", "5", "--sink", receiver.sink)
    receiver.until(PUSHES // 4, dispatching)

    lose(own_redis)

    receiver.until_of(task, PUSHES, dispatching)
    until(lambda: pushlane.task(task)["state"] == "done")
    assert "counts were lost" in pushlane.task(task)["reason"]
    assert pushlane.task(cancelled)["state"] == "cancelled"
    assert receiver.of(cancelled) == 0
    assert {seq for sent, seq in receiver.pushes if sent == task} == set(range(1, PUSHES + 1))
    assert dispatching.stop() == 0
