"""A rolling upgrade from the last release: dispatchers first, then writers (docs/upgrades.md).

Old and new processes share lanes, tasks and counts meanwhile. All are stopped gently, so that each
push arrives once.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.fairness_of import share_error
from bench.faults.services import Services, own_services
from pushlane.core.errors import UserError
from tests.earlier_release import LAST, Earlier, code_of
from tests.processes import Pushlane, Received, Running, each_once, until

pytestmark = [
    pytest.mark.pulsar,
    pytest.mark.timeout(600),
    pytest.mark.answers_after(50),
    pytest.mark.xdist_group("rolling upgrade"),
]

PUSHES = 350
SHARES = {"high": 0.6, "medium": 0.3, "low": 0.1}
SHARE_ERROR = 5
LEVELS = ("high", "medium", "low")
FLOWING = 100


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    try:
        with own_services(tmp_path_factory.mktemp("upgrade"), {}) as running:
            yield running
    except UserError as reason:
        pytest.skip(str(reason))


@pytest.fixture
def settings(services: Services) -> dict[str, str]:
    return {
        "broker": services.urls.broker,
        "admin_url": services.urls.admin,
        "redis_url": services.urls.redis,
        "namespace": f"pushlane/t-{uuid.uuid4().hex[:12]}",
        "pool_lanes": "1",
    }


@pytest.fixture
def old(settings: dict[str, str], tmp_path: Path) -> Iterator[Earlier]:
    commands = Earlier(code_of(LAST, tmp_path), tmp_path, settings)
    yield commands
    commands.end_all()


@pytest.fixture
def new(settings: dict[str, str], tmp_path: Path) -> Iterator[Pushlane]:
    commands = Pushlane(tmp_path, settings)
    yield commands
    commands.end_all()


def test_a_rolling_upgrade_delivers_each_push_once(
    old: Earlier, new: Pushlane, receiver: Received
) -> None:
    totals = written(old, *LEVELS)
    running = [dispatcher(old, receiver) for _ in range(2)]

    for leaving in list(running):
        running.append(dispatcher(new, receiver))
        meanwhile = written(old, "low", "high")
        totals |= meanwhile
        for task in meanwhile:
            receiver.until_of(task, FLOWING, *running)
        assert leaving.stop() == 0, leaving.text
        running.remove(leaving)
    totals |= written(new, *LEVELS) | written(old, "high")

    receiver.until(sum(totals.values()), *running)
    until(lambda: all(new.task(task)["state"] == "done" for task in totals))
    assert {task["id"]: task["state"] for task in old.json("tasks", "--all")} == dict.fromkeys(
        totals, "done"
    )
    assert [one.stop() for one in running] == [0, 0]
    assert receiver.pushes == each_once(totals)


@pytest.mark.measures
def test_old_and_new_dispatchers_together_keep_the_levels_shares(
    old: Earlier, new: Pushlane, receiver: Received
) -> None:
    running = [dispatcher(old, receiver), dispatcher(new, receiver)]
    levels = {new.submit(level, 3 * PUSHES): level for level in reversed(LEVELS)}
    receiver.until(3 * PUSHES * len(levels), *running)

    order = [levels[arrival.task] for arrival in receiver.arrivals]
    first = order.index("high") + FLOWING
    last = min(len(order) - order[::-1].index(level) for level in LEVELS) - FLOWING
    assert last - first > 2 * FLOWING
    assert share_error(order[first:last], SHARES) <= SHARE_ERROR
    assert [one.stop() for one in running] == [0, 0]


def written(pushlane: Pushlane, *levels: str) -> dict[str, int]:
    """A task of each level, and how many pushes it has."""
    return {pushlane.submit(level, PUSHES): PUSHES for level in levels}


def dispatcher(pushlane: Pushlane, receiver: Received) -> Running:
    running = pushlane.dispatch("--slots", "10", "--sink", receiver.sink)
    running.until("started")
    return running
