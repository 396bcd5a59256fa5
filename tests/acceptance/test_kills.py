"""kill -9 at random moments: nothing is lost, and repeats stay within the bound."""

from __future__ import annotations

import random
import secrets
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pushlane.settings import STORE_FILE
from tests.processes import NOT_COUNTED_S, Pushlane, each_once, until

KILLS = 8
SLOTS = 20
TOTALS = {"high": 18_000, "medium": 6_000, "low": 6_000}


@pytest.fixture
def chance() -> random.Random:
    """Its seed is shown when the test fails."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    return random.Random(seed)


@pytest.mark.timeout(900)
def test_killed_dispatchers_lose_nothing(pushlane: Pushlane, receiver, chance) -> None:
    totals = {pushlane.submit(level, count): count for level, count in TOTALS.items()}
    for _ in range(KILLS):
        running = pushlane.dispatch("--slots", str(SLOTS), "--sink", receiver.sink)
        running.until("started")
        receiver.until(receiver.count() + chance.randrange(2_000), running)
        running.kill()

    pushlane.drain(receiver.sink)

    assert set(receiver.pushes) == set(each_once(totals))
    assert receiver.duplicates <= KILLS * (SLOTS + receiver.busiest(NOT_COUNTED_S))
    counts = {t["id"]: (t["state"], t["delivered"]) for t in pushlane.json("tasks", "--all")}
    assert counts == {task: ("done", total) for task, total in totals.items()}
    assert not pushlane.is_embedded or flaws(pushlane) == [("ok",)]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("level", ["high", "low"])
def test_a_submit_killed_again_and_again_is_complete_in_the_end(
    pushlane: Pushlane, deliveries, chance, level: str
) -> None:
    """What a submit has put on the lane shows in the deliveries of a dispatcher beside it."""
    count = 120_000
    submit = ("submit", pushlane.rows(count), "--level", level, "--title", "Hi", "--key", "again")
    dispatcher = pushlane.dispatch("--sink", deliveries.sink)
    for _ in range(3):
        cut_off = pushlane.start(*submit)
        deliveries.until(deliveries.count() + 1 + chance.randrange(5_000), dispatcher, cut_off)
        cut_off.kill()
    [task] = pushlane.json("tasks")

    last = pushlane.start(*submit)

    assert last.wait() == 0, last.text
    assert last.output == task["id"]
    assert "total" in task or "went on with an earlier submit" in last.text
    deliveries.until(count, dispatcher)
    until(lambda: pushlane.task(task["id"])["state"] == "done")
    assert deliveries.pushes == each_once({task["id"]: count})


def flaws(pushlane: Pushlane) -> list[tuple[str]]:
    """What SQLite finds wrong with an embedded store."""
    with closing(sqlite3.connect(Path(pushlane.settings["data_dir"]) / STORE_FILE)) as store:
        return store.execute("PRAGMA integrity_check").fetchall()
