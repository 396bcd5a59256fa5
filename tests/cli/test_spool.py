"""`spool show | send`, and `submit --spool`: what was left behind, and what could not be sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from pushlane.backends.backend import connect
from pushlane.backends.guard_ports import RecipientTurn
from pushlane.core.errors import Unreachable
from pushlane.core.task import Level, Progress, Task
from pushlane.diagnosis.causes import TaskStatuses
from pushlane.model.recipients import collapse_mark
from pushlane.producers.outbox import sender  # before `away`: it keeps what it imports
from pushlane.producers.producer import Producer
from pushlane.settings import load
from tests.command import Command, Ran
from tests.core.support import backend_in
from tests.lane_content import lane_of
from tests.unreadable import store_unreadable


@pytest.fixture
def left(command: Command, tmp_path: Path) -> tuple[str, Path]:
    """The id of a task of which three pushes are in the spool, and where that is."""
    spool = tmp_path / "spool"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sender, "connect", never)
        producer = Producer("orders", level=Level.HIGH, spool=spool).open()
        for number in range(3):
            producer.push(f"user-{number}")
        producer.close(timeout_s=0)
    return producer.task_id, spool


def never(settings: object, *, create: bool = True) -> None:
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
    assert "total" not in command("task", "show", task_id, "--json").json
    assert command("spool", "show", spool, "--json").json[0]["waiting"] == 0


def test_send_can_seal_the_task(command: Command, left: tuple[str, Path]) -> None:
    task_id, spool = left

    [sent] = command("spool", "send", spool, "--seal", "--json").json

    assert (sent["task"], sent["sent"], sent["is_sealed"]) == (task_id, 3, True)
    assert command("task", "show", task_id, "--json").json["total"] == 3
    assert command("spool", "show", spool, "--json").json == []


def test_a_task_whose_producer_is_gone_says_what_to_do() -> None:
    task = Task(id="t1", level=Level.HIGH, lane="task-t1", is_fed=True)

    status = TaskStatuses([], now_ms=0).of(task, Progress("t1"), (), {}, is_stalled=True)

    assert status.state == "stalled"
    assert "pushlane spool send" in status.reason


def test_a_drain_ends_at_a_task_that_its_producer_left_open_and_says_so(
    command: Command, tmp_path: Path
) -> None:
    with Producer("orders", spool=tmp_path / "spool") as producer:
        producer.push("user-1", title="Paid")

    ran = command("dispatch", "--drain", "--sink", "null")

    assert ran.exit_code == 0
    said = [line for line in ran.stderr.splitlines() if "nothing is left of" in line]
    assert len(said) == 1
    assert said[0].endswith(
        "nothing is left of orders: it stays open, as its producer is not running"
    )
    [task] = command("tasks", "--json").json
    assert (task["id"], task["shown_state"]) == (producer.task_id, "open")
    shown = command("tasks", "--state", "open").stdout
    assert producer.task_id in shown
    why = command("why", producer.task_id)
    assert why.stdout.startswith("open: its producer is not running")
    assert why.stderr == ""


def test_a_folder_that_is_no_spool_is_refused(command: Command, tmp_path: Path) -> None:
    ran = command("spool", "show", tmp_path / "other")

    assert ran.exit_code == 1
    assert "is not a spool" in ran.stderr
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

    assert f"task {task_id} is cancelled" in ran.stderr
    assert command("spool", "show", spool, "--json").json == []


@pytest.fixture
def submit(command: Command, tmp_path: Path) -> Callable[..., Ran]:
    """Submits three rows with the test's spool at hand."""
    rows = command.file("rows.csv", "recipient\nuser-1\nuser-2\nuser-3\n")

    def run(*more: str | Path) -> Ran:
        spool = tmp_path / "spool"
        return command("submit", rows, "--level", "high", "--title", "Hi", "--spool", spool, *more)

    return run


@pytest.fixture
def away(monkeypatch) -> Iterator[pytest.MonkeyPatch]:
    """No service answers until it is undone."""
    with monkeypatch.context() as patch:
        patch.setattr("pushlane.backends.backend.connect", never)
        yield patch


def test_a_submit_uses_no_spool_while_the_services_answer(submit, tmp_path: Path) -> None:
    assert submit().exit_code == 0

    assert not (tmp_path / "spool").exists()


def test_a_submit_without_services_is_sent_from_the_spool(
    command: Command, submit, away: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran = submit("--key", "daily")
    assert (ran.exit_code, "3 pushes" in ran.stderr) == (0, True)
    assert command("spool", "show", tmp_path / "spool", "--json").json[0]["waiting"] == 3
    away.undo()

    assert command("spool", "send", tmp_path / "spool").stdout == ran.stdout

    shown = command("task", "show", ran.stdout.strip(), "--json").json
    assert (shown["total"], shown["key"]) == (3, "daily")


def test_a_submit_of_a_key_is_in_the_spool_once(submit, away, command, tmp_path: Path) -> None:
    first = submit("--key", "daily")

    again = submit("--key", "daily")
    other = submit("--key", "daily", "--title", "Other")

    assert again.stdout == first.stdout
    assert "already" in again.stderr
    assert (other.exit_code, "'daily'" in other.stderr) == (1, True)
    assert len(command("spool", "show", tmp_path / "spool", "--json").json) == 1


def test_a_submit_that_got_through_meanwhile_is_not_sent_again(
    command: Command, submit, away: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    submit("--key", "daily")
    away.undo()
    direct = submit("--key", "daily")

    ran = command("spool", "send", tmp_path / "spool")

    assert f"submitted as task {direct.stdout.strip()} meanwhile" in ran.stderr
    assert len(command("tasks", "--json").json) == 1
    assert command("spool", "show", tmp_path / "spool", "--json").json == []


def test_a_key_that_was_used_for_other_rows_meanwhile_is_refused_and_stays(
    command: Command, submit, away: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    submit("--key", "daily")
    submit("--key", "hourly")
    away.undo()
    submit("--key", "daily", "--title", "Other")

    ran = command("spool", "send", tmp_path / "spool")

    assert ran.exit_code == 1
    assert "used by task" in ran.stderr
    left = command("spool", "show", tmp_path / "spool", "--json").json
    assert [one["waiting"] for one in left] == [3]
    assert len(command("tasks", "--json").json) == 2


def test_a_bad_row_is_refused_before_anything_is_spooled(
    command: Command, away, tmp_path: Path
) -> None:
    rows = command.file("rows.csv", "recipient,name\nuser-1,A\n,B\n")

    ran = command("submit", rows, "--level", "high", "--spool", tmp_path / "spool")

    assert ran.exit_code == 1
    assert command("spool", "show", tmp_path / "spool", "--json").json == []


def test_pushes_from_a_spool_replace_those_that_wait(
    command: Command, submit, tmp_path: Path
) -> None:
    waiting = submit("--collapse", "news").stdout.strip()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pushlane.backends.backend.connect", never)
        submit("--collapse", "news")
    command("spool", "send", tmp_path / "spool")
    settings = load()

    async def turns() -> Sequence[RecipientTurn]:
        async with connect(settings) as backend:
            marks = [collapse_mark("default", push) for push in await lane_of(backend, waiting)]
            return await backend.recipient_windows.enter(marks, "a dispatcher", 60.0)

    assert asyncio.run(turns()) == [RecipientTurn.OVER] * 3


def test_what_is_left_of_a_task_that_only_a_newer_version_understands_stays(
    command: Command, left: tuple[str, Path]
) -> None:
    task_id, spool = left

    async def make_newer() -> None:
        async with backend_in(command.folder / "data") as (backend, _):
            await backend.registry.add(Task(id=task_id, level=Level.HIGH, lane=f"task-{task_id}"))
            await store_unreadable(backend.registry, task_id, format=3)

    asyncio.run(make_newer())

    ran = command("spool", "send", spool)

    assert ran.exit_code == 1
    assert f"task {task_id} has format 3" in ran.stderr
    assert command("spool", "show", spool, "--json").json[0]["waiting"] == 3
