"""kill -9 of `pushlane pipeline run` at random moments: each receipt is counted once."""

from __future__ import annotations

import os
import random
import secrets
from collections import Counter
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from pushlane.pipeline.receipts.sync_log import SyncReceiptLog
from pushlane.pipeline.store import open_store
from pushlane.settings import Settings
from tests.processes import Pushlane, Running, each_once, until
from tests.receipt_bodies import body

KILLS = 3
TASKS = ("a", "b")
RECEIPTS_A_TASK = 24_000  # more than three jobs get to, even where files come fast
A_BODY = 160
REPEATED = 20
MOST_FILES = 30  # that a job may write before it is killed: those of two batches
DEADLINE_S = 300.0

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("java"),
    pytest.mark.parametrize("pushlane", ["embedded"], indirect=True),
]


@pytest.fixture
def chance() -> random.Random:
    """Its seed is shown when the test fails."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    return random.Random(seed)


@pytest.fixture
def settings(pushlane: Pushlane) -> Settings:
    return Settings(broker="embedded", data_dir=Path(pushlane.settings["data_dir"]))


def append(settings: Settings) -> int:
    """All receipts, some bodies of them twice; how many that are."""
    starts = range(1, RECEIPTS_A_TASK + 1, A_BODY)
    bodies = [body(task, range(first, first + A_BODY)) for first in starts for task in TASKS]
    with SyncReceiptLog(settings) as log:
        for each in (*bodies, *bodies[:REPEATED]):
            log.append([each])
    return len(TASKS) * RECEIPTS_A_TASK + REPEATED * A_BODY


def start(pushlane: Pushlane) -> Running:
    """In many small batches."""
    return pushlane.start("pipeline", "run", "--until-idle", "--max-bodies", "40", "--memory", "1g")


def files(settings: Settings) -> int:
    """How many there are in the store, counted or not."""
    return sum(len(names) for _, _, names in os.walk(settings.reports_root))


def test_killed_jobs_lose_nothing_and_count_nothing_twice(
    pushlane: Pushlane, settings: Settings, chance
) -> None:
    appended = append(settings)
    for _ in range(KILLS):
        running = start(pushlane)
        enough = files(settings) + chance.randrange(5, MOST_FILES)
        until(lambda: files(settings) >= enough or running.has_ended, DEADLINE_S)  # noqa: B023
        running.kill()
    assert pushlane.json("pipeline", "status")["lag"], "it had read everything before the last kill"

    last = start(pushlane)
    assert last.wait(DEADLINE_S) == 0, last.text

    totals = dict.fromkeys(TASKS, RECEIPTS_A_TASK)
    counts = pushlane.json("pipeline", "status")["counts"]
    assert (counts["receipts"], counts["duplicates"]) == (appended, REPEATED * A_BODY)
    assert detail(settings) == each_once(totals)
    assert counted(settings) == totals


def detail(settings: Settings) -> Counter[tuple[str, int]]:
    """How often the store has each push."""
    rows = pq.ParquetDataset(open_store(settings.reports_root).files("detail")).read()
    return Counter(zip(rows["task_id"].to_pylist(), rows["seq"].to_pylist(), strict=True))


def counted(settings: Settings) -> dict[str, int]:
    """Receipts by task, as the counts say."""
    rows = pq.ParquetDataset(open_store(settings.reports_root).counted()).read(["task_id", "n"])
    return {
        task: pc.sum(rows.filter(pc.equal(rows["task_id"], task))["n"]).as_py() for task in TASKS
    }
