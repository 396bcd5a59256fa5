"""kill -9 in the middle of a fan-out: of the driver, of its workers; each push arrives once."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import Pushlane, Received, Running, each_once, until

COUNT = 60_000

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("java")]


@pytest.fixture
def fanning(pushlane: Pushlane, tmp_path: Path) -> Iterator[Pushlane]:
    """Commands whose frozen audiences are the test's own."""
    (tmp_path / "task.toml").write_text('level = "high"\ntitle = "Hi {name}"\n')
    own = Pushlane(tmp_path, {**pushlane.settings, "fanout_dir": str(tmp_path / "fanout")})
    own.rows(COUNT)
    yield own
    own.end_all()


def start(fanning: Pushlane) -> Running:
    """Many small parts, so that some are done, some begun and some not when it is killed."""
    command = ("fanout", "--audience", f"{COUNT}.csv", "--task-spec", "task.toml")
    parts = "spark.sql.shuffle.partitions=8", "spark.sql.adaptive.enabled=false"
    return fanning.start(*command, *(f"--conf={part}" for part in parts), "--memory", "1g")


def frozen(fanning: Pushlane, pattern: str) -> list[Path]:
    """What there is in the folder of the only fan-out."""
    return list((fanning.folder / "fanout").glob(f"*/{pattern}"))


def until_frozen(fanning: Pushlane, pattern: str, running: Running) -> None:
    until(lambda: bool(frozen(fanning, pattern)) or running.has_ended)
    assert frozen(fanning, pattern), running.text


def judge(fanning: Pushlane, last: Running, deliveries: Received) -> None:
    assert last.wait() == 0, last.text
    fanning.drain(deliveries.sink)
    assert deliveries.pushes == each_once({last.output: COUNT})


@pytest.mark.parametrize("at", ["*/rows/_temporary", "manifest.json", "*/progress/*[0-9]"])
def test_a_driver_killed_and_run_again_leaves_each_push_once(fanning, deliveries, at: str) -> None:
    """While it writes what it freezes, before it publishes, and while it publishes."""
    cut_off = start(fanning)
    until_frozen(fanning, at, cut_off)
    cut_off.kill()
    assert not any(task.get("total") for task in fanning.json("tasks")), "it had ended before"

    judge(fanning, start(fanning), deliveries)


def test_workers_killed_in_mid_part_are_replaced(fanning, deliveries) -> None:
    running = start(fanning)
    until_frozen(fanning, "*/progress/*[0-9]", running)

    assert kill_workers(running) > 0

    judge(fanning, running, deliveries)


def kill_workers(running: Running) -> int:
    """kill -9 every Python process that Spark has started; how many there were."""
    killed = 0
    for process in below(running.pid):
        command = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        if b"pyspark.daemon" in command:
            os.kill(process, signal.SIGKILL)
            killed += 1
    return killed


def below(process: int) -> list[int]:
    """The descendants of a process, the youngest first."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            except (FileNotFoundError, ProcessLookupError):  # it has just ended
                continue
            children[int(parent)].append(int(entry.name))
    found = [process]
    for one in found:
        found += children[one]
    return found[:0:-1]
