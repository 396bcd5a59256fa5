"""`spool show | send`: what a producer that does not come back has left."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.task_view import TaskView
from lanes.errors import Unreachable
from lanes.task import Level, Progress, Task
from producers.producer import Producer
from tests.unit.command import Command


@pytest.fixture
def left(command: Command, tmp_path: Path) -> tuple[str, Path]:
    """The id of a task of which three pushes are in the spool, and where that is."""
    spool = tmp_path / "spool"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("producers.feed.sender.connect", never)
        producer = Producer("orders", level=Level.HIGH, spool=spool).open()
        for number in range(3):
            producer.push(f"user-{number}")
        producer.close(timeout_s=0)
    return producer.task_id, spool


def never(settings: object) -> None:
    raise Unreachable("no answer")


def test_show_tells_what_waits(command: Command, left: tuple[str, Path]) -> None:
    task_id, spool = left

    [shown] = command("spool", "show", spool, "--json").json

    assert (shown["task"], shown["waiting"], shown["is_sealed"]) == (task_id, 3, False)
    assert task_id in command("spool", "show", spool).stdout


def test_send_puts_it_on_its_lane_and_leaves_the_task_open(
    command: Command, left: tuple[str, Path]
) -> None:
    task_id, spool = left

    ran = command("spool", "send", spool)

    assert ran.stdout.split() == [task_id]
    assert "3 pushes sent" in ran.stderr
    assert command("task", "show", task_id, "--json").json["total"] is None
    assert command("spool", "show", spool, "--json").json[0]["waiting"] == 0


def test_send_can_seal_the_task(command: Command, left: tuple[str, Path]) -> None:
    task_id, spool = left

    [sent] = command("spool", "send", spool, "--seal", "--json").json

    assert (sent["task"], sent["sent"], sent["is_sealed"]) == (task_id, 3, True)
    assert command("task", "show", task_id, "--json").json["total"] == 3
    assert command("spool", "show", spool, "--json").json == []


def test_what_was_sent_is_delivered(command: Command, left: tuple[str, Path]) -> None:
    task_id, spool = left
    command("spool", "send", spool, "--seal")

    command("dispatch", "--drain", "--sink", "null")

    assert command("task", "show", task_id, "--json").json["state"] == "done"


def test_a_task_whose_producer_is_gone_says_what_to_do() -> None:
    task = Task(id="t1", level=Level.HIGH, lane="task-t1", is_fed=True)

    view = TaskView(task, Progress("t1"), at_ms=0, is_stalled=True)

    assert view.state == "stalled"
    assert "pushlane spool send" in view.reason


def test_a_folder_that_is_no_spool_is_refused(command: Command, tmp_path: Path) -> None:
    ran = command("spool", "show", tmp_path / "other")

    assert ran.exit_code == 1
    assert "is no spool" in ran.stderr
    assert not (tmp_path / "other").exists()


def test_a_spool_in_use_is_refused(command: Command, tmp_path: Path) -> None:
    with Producer("orders", spool=tmp_path / "spool"):
        ran = command("spool", "send", tmp_path / "spool")

    assert ran.exit_code == 1
    assert "used by another producer" in ran.stderr


def test_what_was_left_of_a_cancelled_task_is_dropped_with_a_word(
    command: Command, left: tuple[str, Path]
) -> None:
    task_id, spool = left
    command("spool", "send", spool)
    command("cancel", task_id, "--yes")

    ran = command("spool", "send", spool)

    assert f"task {task_id} of this producer is cancelled" in ran.stderr
    assert command("spool", "show", spool, "--json").json == []
