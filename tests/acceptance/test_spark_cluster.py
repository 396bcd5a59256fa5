"""Fan-out and receipts on a Spark cluster, with executors and drivers killed with -9 in mid-run."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pushlane.pipeline.store import open_store
from pushlane.settings import Settings
from tests.processes import Pushlane, Received, Running, each_once, until
from tests.spark_cluster import SparkCluster

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("spark cluster"),
    pytest.mark.parametrize(
        "pushlane", [pytest.param("pulsar", marks=pytest.mark.pulsar)], indirect=True
    ),
]

FILES = 4
ROWS_A_FILE = 25_000
TOTAL = FILES * ROWS_A_FILE
RECEIPTS = 20_000
BODIES_A_BATCH = "8"
DEADLINE_S = 300.0  # of a command: Spark starts on the driver and on two executors first


@pytest.fixture
def audience(tmp_path: Path) -> Path:
    folder = tmp_path / "audience"
    folder.mkdir()
    for number in range(FILES):
        first = number * ROWS_A_FILE
        rows = [f"device-{row}" for row in range(first, first + ROWS_A_FILE)]
        pq.write_table(pa.table({"recipient": rows}), folder / f"{number}.parquet")
    return folder


@pytest.fixture
def fan_out(
    pushlane: Pushlane, spark_cluster: SparkCluster, audience: Path
) -> Callable[[], Running]:
    """Starts the fan-out of the audience; each time the same command."""
    spec = pushlane.folder / "task.toml"
    spec.write_text('level = "high"\nkey = "all"\nbody = "Hello"\n')
    what = ("--audience", audience, "--task-spec", spec)
    return lambda: pushlane.start("fanout", *what, "--master", spark_cluster.master)


def test_an_executor_killed_while_it_publishes_changes_nothing(
    fan_out, pushlane: Pushlane, spark_cluster: SparkCluster, deliveries: Received
) -> None:
    running = fan_out()
    until_publishing(pushlane, running)

    spark_cluster.kill_executor()

    assert running.wait(DEADLINE_S) == 0, running.text
    assert_each_is_on_its_lane_once(pushlane, running.output, deliveries)


def test_a_driver_killed_while_it_publishes_is_made_good_by_the_same_command(
    fan_out, pushlane: Pushlane, spark_cluster: SparkCluster, deliveries: Received
) -> None:
    running = fan_out()
    until_publishing(pushlane, running)

    running.kill()
    again = fan_out()

    assert again.wait(DEADLINE_S) == 0, again.text
    assert_each_is_on_its_lane_once(pushlane, again.output, deliveries)


def until_publishing(pushlane: Pushlane, running: Running) -> None:
    """Wait until some of the pushes are on a lane, and make sure that not all are."""
    until(lambda: published(pushlane) > 0 or running.has_ended, DEADLINE_S)
    assert 0 < published(pushlane) < TOTAL, running.text


def published(pushlane: Pushlane) -> int:
    """The messages that the broker has taken on lanes of tasks."""
    topics = (
        f"{pushlane.settings['admin_url']}/admin/v2/persistent/{pushlane.settings['namespace']}"
    )
    lanes = [topic for topic in got(topics) or () if "/task-" in topic]
    counts = [got(f"{topics}/{lane.rpartition('/')[2]}/stats") for lane in lanes]
    return sum(stats["msgInCounter"] for stats in counts if stats)


def got(url: str):
    """None while there is no such thing."""
    try:
        with urllib.request.urlopen(url, timeout=10) as reply:
            return json.load(reply)
    except urllib.error.HTTPError:
        return None


def assert_each_is_on_its_lane_once(pushlane: Pushlane, task: str, deliveries: Received) -> None:
    assert pushlane.task(task)["total"] == TOTAL
    pushlane.drain(deliveries.sink)
    assert deliveries.pushes == each_once({task: TOTAL})


def test_a_driver_killed_while_it_reads_receipts_is_made_good_by_another(
    pushlane: Pushlane, spark_cluster: SparkCluster, deliveries: Received
) -> None:
    task = pushlane.submit("high", RECEIPTS)
    pushlane.drain(deliveries.sink)
    reading = ("pipeline", "run", "--until-idle", "--master", spark_cluster.master)

    running = pushlane.start(*reading, "--max-bodies", BODIES_A_BATCH)
    until(lambda: "batch 1" in running.text or running.has_ended, DEADLINE_S)
    assert not running.has_ended, running.text
    running.kill()
    killed_at = pushlane.json("pipeline", "status")
    again = pushlane.start(*reading)

    assert again.wait(DEADLINE_S) == 0, again.text
    assert 0 < killed_at["counts"]["receipts"] < RECEIPTS
    assert pushlane.task(task)["delivered"] == RECEIPTS
    assert pushlane.json("pipeline", "status")["counts"]["receipts"] == RECEIPTS
    assert rows_of(pushlane, "detail", "task_id", "seq") == each_once({task: RECEIPTS})


def rows_of(pushlane: Pushlane, table: str, *columns: str) -> Counter[tuple]:
    """How often the store has each row of a table."""
    store = open_store(Settings(data_dir=Path(pushlane.settings["data_dir"])).reports_root)
    rows = pq.ParquetDataset(store.files(table)).read(list(columns))
    return Counter(zip(*(rows[column].to_pylist() for column in columns), strict=True))
