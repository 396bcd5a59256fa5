"""`forget`, and the search of `tasks`."""

from __future__ import annotations

import pytest

from tests.command import Command


def ids(command: Command, *more: str) -> list[str]:
    return [task["id"] for task in command("tasks", "--json", *more).json]


def ended(command: Command, *more: str) -> str:
    task = command.submit("high", 3, *more)
    command("cancel", task, "--yes")
    return task


def test_a_task_that_has_ended_is_forgotten(command: Command) -> None:
    task, other = ended(command, "--key", "sale"), ended(command)

    ran = command("forget", "sale", "--yes")

    assert (ran.exit_code, ran.stderr) == (0, f"task {task} is forgotten\n")
    assert ids(command, "--all") == [other]
    assert command("task", "show", task).exit_code == 1


def test_its_key_can_be_submitted_again(command: Command) -> None:
    task = ended(command, "--key", "sale")
    command("forget", task, "--yes")

    assert command.submit("high", 3, "--key", "sale") != task


def test_a_task_that_runs_is_refused_with_what_to_do(command: Command) -> None:
    over, task = ended(command), command.submit()

    ran = command("forget", over, task, "--yes")

    assert ran.exit_code == 1
    assert f"task {task} is waiting" in ran.stderr
    assert f"pushlane cancel {task}" in ran.stderr
    assert set(ids(command, "--all")) == {over, task}


def test_dead_pushes_that_lie_beside_those_of_others_go_too(command: Command) -> None:
    task, other = died(command), died(command)
    assert {dead["task"] for dead in command("dead", "list", "--json").json} == {task, other}

    command("forget", task, "--yes")

    assert {dead["task"] for dead in command("dead", "list", "--json").json} == {other}


def died(command: Command) -> str:
    task = command.submit("low", 2, "--max-attempts", "1")
    command("dispatch", "--drain", "--sink", "tests.cli.test_forget:bury")
    return task


def bury(push: object) -> None:
    raise ValueError("this one is refused for good")


def test_without_a_terminal_it_needs_yes(command: Command) -> None:
    task = ended(command)

    ran = command("forget", task)

    assert ran.exit_code == 1
    assert "--yes" in ran.stderr
    assert ids(command, "--all") == [task]


def test_an_unknown_task_is_answered_with_the_nearest_and_nothing_is_forgotten(
    command: Command,
) -> None:
    task = ended(command, "--name", "autumn-sale")

    ran = command("forget", task, "autum-sale", "--yes")

    assert ran.exit_code == 1
    assert "did you mean 'autumn-sale'" in ran.stderr
    assert ids(command, "--all") == [task]


@pytest.mark.parametrize(
    ("search", "found"),
    [
        (["--find", "AUTUMN"], [0, 1]),
        (["--find", "k-2"], [1]),
        (["--app", "shop"], [1]),
        (["--level", "low"], [2]),
        (["--find", "sale", "--level", "low"], [2]),
        (["--find", "nobody"], []),
    ],
)
def test_tasks_finds_by_a_part_of_id_key_or_name_by_app_and_level(
    command: Command, search: list[str], found: list[int]
) -> None:
    tasks = [
        command.submit("high", 1, "--name", "Autumn sale"),
        command.submit("high", 1, "--name", "autumn", "--key", "k-2", "--app", "shop"),
        command.submit("low", 1, "--name", "winter sale"),
    ]

    assert ids(command, *search) == [tasks[number] for number in found]


def test_of_more_than_the_limit_the_newest_are_shown_and_it_says_so(command: Command) -> None:
    tasks = [command.submit("high", 1) for _ in range(3)]

    ran = command("tasks", "--limit", "2", "--json")

    assert [task["id"] for task in ran.json] == tasks[1:]
    assert "these are the newest 2" in ran.stderr
    assert "--find" in ran.stderr
    assert ids(command, "--limit", "0") == tasks
    assert "newest" not in command("tasks", "--limit", "3").stderr


def test_a_level_that_there_is_not_is_named(command: Command) -> None:
    ran = command("tasks", "--level", "hihg")

    assert ran.exit_code == 1
    assert "did you mean 'high'" in ran.stderr
