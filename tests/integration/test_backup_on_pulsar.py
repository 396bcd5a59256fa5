"""The registry on Pulsar is lost with all of its cluster, and comes back from a copy."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.own_redis import OwnRedis
from tests.processes import Pushlane, Received, until

pytestmark = pytest.mark.pulsar


@pytest.fixture
def lost(pulsar_urls, own_redis: OwnRedis, tmp_path: Path) -> Iterator[Pushlane]:
    """Commands on a namespace that will be lost."""
    yield from commands_on(pulsar_urls, own_redis, tmp_path / "lost")


@pytest.fixture
def new(pulsar_urls, own_redis: OwnRedis, tmp_path: Path) -> Iterator[Pushlane]:
    """Commands on another namespace, as a new cluster would have."""
    yield from commands_on(pulsar_urls, own_redis, tmp_path / "new")


def commands_on(pulsar_urls, own_redis: OwnRedis, folder: Path) -> Iterator[Pushlane]:
    folder.mkdir()
    commands = Pushlane(
        folder,
        {
            "broker": pulsar_urls.broker,
            "admin_url": pulsar_urls.admin,
            "redis_url": own_redis.url,
            "namespace": f"pushlane/t-{uuid.uuid4().hex[:12]}",
            "pool_lanes": "1",
        },
    )
    yield commands
    commands.end_all()


def test_tasks_weights_and_documents_come_back(
    lost: Pushlane, new: Pushlane, receiver: Received, tmp_path: Path
) -> None:
    copy = str(tmp_path / "copy")
    cancelled = lost.submit("medium", 10)
    lost("cancel", cancelled, "--yes")
    running = lost.submit("high", 10)
    lost("levels", "5:3:2")
    lost("limit", "app/default", "--rate", "7/s")

    lost("backup", copy)
    new("tasks")  # what was there before is not what the copy says
    new("restore", copy)

    assert new.task(cancelled)["state"] == "cancelled"
    assert new.task(running)["state"] == "running"
    assert "5" in new("levels")
    assert "app/default" in new("limits")


def test_a_task_whose_pushes_were_lost_says_so_and_others_go(
    lost: Pushlane, new: Pushlane, receiver: Received, tmp_path: Path
) -> None:
    copy = str(tmp_path / "copy")
    running = lost.submit("high", 10)
    lost("backup", copy)
    new("restore", copy)

    dispatching = new.dispatch("--sink", receiver.sink)
    later = new.submit("high", 10)

    receiver.until_of(later, 10, dispatching)
    until(lambda: "lost" in new.task(running)["reason"])
    assert receiver.of(running) == 0
    assert dispatching.stop() == 0


def test_a_registry_that_has_tasks_of_its_own_is_left_as_it_is(
    lost: Pushlane, new: Pushlane, tmp_path: Path
) -> None:
    copy = str(tmp_path / "copy")
    lost.submit("high", 10)
    lost("backup", copy)
    task = new.submit("high", 10)

    ran = new.ran("restore", copy)

    assert ran.exit_code == 1
    assert "is left as it is" in ran.stderr
    assert new.task(task)["state"] == "running"
