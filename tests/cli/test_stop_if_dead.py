"""`--stop-if-dead`, the command that changes it, and what is said of tasks whose pushes died."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import pushlane.diagnosis.look
from pushlane.backends.backend import Backend, connect
from pushlane.core.push import Kind
from pushlane.core.task import Finished, State
from pushlane.model import task_changes
from pushlane.model.stop_rule import DEFAULT_STOP
from pushlane.settings import Settings
from tests.command import Command


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushlane.diagnosis.look, "_BETWEEN_S", 0.0)


def apply(command: Command, work: Callable[[Backend], Awaitable[object]]) -> None:
    async def run() -> None:
        async with connect(Settings(data_dir=command.folder / "data")) as backend:
            await work(backend)

    asyncio.run(run())


def die(command: Command, task: str, *died: tuple[str, int]) -> None:
    """Count so many dead pushes of each reason."""
    finished, seq = [], 1
    for reason, count in died:
        finished.append(Finished(task, Kind.DEAD, list(range(seq, seq + count)), reason))
        seq += count
    apply(command, lambda backend: backend.registry.record(finished))


@pytest.mark.parametrize(
    ("options", "stored"),
    [((), DEFAULT_STOP), (("--stop-if-dead", "5%"), "5%"), (("--stop-if-dead", "off"), "off")],
)
def test_a_submitted_task_stops_at_half_of_the_first_thousand_unless_told(
    command: Command, options: tuple[str, ...], stored: str
) -> None:
    task = command.submit("high", 3, *options)

    assert command("task", "show", task, "--json").json["stop_if_dead"] == stored


@pytest.mark.parametrize("wrong", ["0%", "101%", "5", "abc", "0.05"])
def test_what_is_no_share_is_refused_before_anything_is_submitted(
    command: Command, wrong: str
) -> None:
    rows = command.file("rows.csv", "recipient\nann\n")

    ran = command("submit", rows, "--level", "high", "--title", "Hi", "--stop-if-dead", wrong)

    assert ran.exit_code == 1
    assert f"stop-if-dead {wrong!r}" in ran.stderr
    assert "write 5%, 50% of the first 1000, or off" in ran.stderr
    assert command("tasks", "--all", "--json").json == []


def test_the_limit_can_be_changed_while_the_task_goes_on(command: Command) -> None:
    task = command.submit("high", 3)

    ran = command("stop-if-dead", task, "7.5%")

    assert ran.stderr == f"task {task} stops if: more than 7.5% are dead\n"
    assert command("stop-if-dead", task, "off").stderr == f"task {task} stops if: off\n"
    assert command("stop-if-dead", task, "7").exit_code == 1
    command("cancel", task, "--yes")
    assert "cannot be given a limit" in command("stop-if-dead", task, "5%").stderr


def test_resume_says_that_it_is_not_stopped_again(command: Command) -> None:
    task = command.submit("high", 3, "--stop-if-dead", "5%")
    apply(command, lambda backend: backend.stop(task, "stopped: 150 of 200 died"))
    assert "stopped: 150 of 200 died" in command("task", "show", task).stdout

    ran = command("resume", task, "--json")

    assert (ran.json["state"], ran.json["stop_if_dead"], ran.json["stopped"]) == (
        "running",
        "5%",
        True,
    )
    assert "it is not stopped again however many die" in ran.stderr
    shown = command("task", "show", task).stdout
    assert "more than 5% are dead; it did, and does not again" in shown


def test_resume_of_a_task_that_somebody_paused_says_nothing_of_it(command: Command) -> None:
    task = command.submit("high", 3)
    command("pause", task)

    assert command("resume", task).stderr == f"task {task} is running\n"


def test_deaths_stand_in_the_reason_and_first_in_why(command: Command) -> None:
    task = command.submit("high", 400)
    die(command, task, ("HTTP 404", 150), ("no answer", 8))

    assert "158 died, most often HTTP 404" in command("tasks").stdout.replace("\n", " ")
    assert "158: HTTP 404 (150), no answer (8)" in command("task", "show", task).stdout
    shown = command("task", "show", task, "--json").json
    assert shown["died_of"] == {"HTTP 404": 150, "no answer": 8}
    assert "failed" not in shown
    said = command("why", task).stdout.splitlines()
    assert said[0] == "deaths: 158 of 158 died: HTTP 404 (150), no answer (8)"
    assert f"pushlane dead list --task {task}" in said[1]
    assert f"pushlane dead retry --task {task}" in said[1]


def test_a_task_that_is_done_says_of_what_its_pushes_died(command: Command) -> None:
    task = command.submit("high", 3)
    die(command, task, ("HTTP 404", 3))
    apply(
        command,
        lambda backend: backend.registry.change(task, task_changes.finish(State.DONE)),
    )

    assert "done: it is done; 0 delivered, 3 dead; died of HTTP 404" in command("why", task).stdout
    assert "3 died: HTTP 404" in command("tasks", "--all").stdout.replace("\n", " ")
