"""Tasks and limits that cannot be read: what commands say of them, and how they are removed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pushlane.backends.backend import Backend, connect
from pushlane.core.names import own_lane
from pushlane.model.presence import Process
from pushlane.settings import Settings
from tests.command import Command
from tests.unreadable import store_unreadable


def on_store(folder: Path, work: Callable[[Backend], Awaitable[Any]]) -> Any:
    async def session() -> Any:
        async with connect(Settings(data_dir=folder / "data")) as backend:
            return await work(backend)

    return asyncio.run(session())


def damaged(command: Command, *more: str, **fields: Any) -> str:
    task = command.submit("high", 3, *more)
    given = fields or {"quota": 2.5}
    on_store(command.folder, lambda backend: store_unreadable(backend.registry, task, **given))
    return task


def ids(command: Command) -> list[str]:
    return [task["id"] for task in command("tasks", "--json", "--all").json]


@pytest.mark.parametrize(
    "arguments", [("task", "show"), ("why",), ("pause",), ("promote",), ("forget", "--yes")]
)
def test_a_command_says_what_is_damaged_and_what_removes_it(
    command: Command, arguments: tuple[str, ...]
) -> None:
    task = damaged(command)

    ran = command(*arguments, task)

    assert ran.exit_code == 1
    assert f"task {task} is damaged in its field quota" in ran.stderr
    assert f"pushlane forget {task} --force" in ran.stderr


@pytest.mark.parametrize("word", ["sale", "rows", ""])
@pytest.mark.parametrize("arguments", [("cancel", "--yes"), ("forget", "--force", "--yes")])
def test_it_is_removed_by_its_id_its_key_and_its_name(
    command: Command, arguments: tuple[str, ...], word: str
) -> None:
    task = damaged(command, "--key", "sale")

    ran = command(*arguments, word or task)

    assert ran.exit_code == 0
    assert f"task {task} could not be read: it is removed" in ran.stderr
    lanes = on_store(command.folder, lambda backend: backend.broker.lanes())
    assert own_lane(task) not in lanes
    assert command("task", "show", task).exit_code == 1
    again = command.submit("high", 3, "--key", "sale")
    assert ids(command) == [again]


def test_its_dead_pushes_go_too(command: Command) -> None:
    task, other = died(command), died(command)
    on_store(command.folder, lambda backend: store_unreadable(backend.registry, task, quota=2.5))

    command("forget", task, "--force", "--yes")

    assert {dead["task"] for dead in command("dead", "list", "--json").json} == {other}


def died(command: Command) -> str:
    task = command.submit("low", 2, "--max-attempts", "1")
    command("dispatch", "--drain", "--sink", "tests.cli.test_forget:bury")
    return task


def test_others_are_forgotten_beside_it(command: Command) -> None:
    over = command.submit()
    command("cancel", over, "--yes")
    bad = damaged(command)

    refused = command("forget", over, bad, "--yes")
    assert (refused.exit_code, ids(command)) == (1, [over])

    assert command("forget", over, bad, "--force", "--yes").exit_code == 0
    assert ids(command) == []


@pytest.mark.parametrize("arguments", [("cancel",), ("forget", "--force")])
def test_without_a_terminal_it_needs_yes(command: Command, arguments: tuple[str, ...]) -> None:
    task = damaged(command)

    ran = command(*arguments, task)

    assert (ran.exit_code, "add --yes" in ran.stderr) == (1, True)
    assert f"task {task} is damaged" in command("task", "show", task).stderr


def test_force_does_not_forget_what_runs(command: Command) -> None:
    task = command.submit()

    ran = command("forget", task, "--force", "--yes")

    assert (ran.exit_code, f"task {task} is waiting" in ran.stderr) == (1, True)


@pytest.mark.parametrize("arguments", [("cancel",), ("forget", "--force")])
def test_it_stays_while_a_newer_process_lives(command: Command, arguments: tuple[str, ...]) -> None:
    task = damaged(command, format=99)
    newer = Process(id="p9", kind="dispatcher", pid=77, version="99.0.0", format=9)
    on_store(command.folder, lambda backend: backend.presence.announce(newer, 600))

    ran = command(*arguments, task, "--yes")

    assert ran.exit_code == 1
    assert "p9 (pid 77, version 99.0.0)" in ran.stderr
    shown = command("task", "show", task).stderr
    assert f"task {task} has format 99" in shown
    assert "upgrade this process" in shown


def test_many_are_told_in_one_line(command: Command, caplog: pytest.LogCaptureFixture) -> None:
    good = command.submit()
    for _ in range(3):
        damaged(command)
    damaged(command, format=99)
    caplog.clear()

    ran = command("tasks")

    assert good in ran.stdout
    [told] = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert "4 tasks cannot be read (3 damaged, 1 of a newer version)" in told
    assert "`pushlane doctor` says which" in told


def test_each_list_of_tasks_tells_of_those_that_cannot_be_read(
    command: Command, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> str:
        command("tasks")  # a server logs them once, a backend whenever it is opened
        caplog.clear()
        return command("tasks").stderr + caplog.text

    command.submit()
    of_none = told()
    task = damaged(command)
    of_one = told()
    damaged(command, format=99)
    of_two = told()

    assert "cannot be read" not in of_none
    assert f"task {task} is damaged in its field quota" in of_one
    assert f"pushlane forget {task} --force" in of_one
    assert "2 tasks cannot be read (1 damaged, 1 of a newer version)" in of_two


def test_doctor_lists_them_as_errors(command: Command) -> None:
    task = damaged(command)
    on_store(
        command.folder,
        lambda backend: backend.documents.put("limit", "app/shop", b'{"quota": 2.5}', None),
    )

    ran = command("doctor", "--json")

    found = [one for one in ran.json["findings"] if one["check"] == "records"]
    assert ran.exit_code == 1
    assert [(one["severity"], one["mend"]) for one in found] == [
        ("error", f"pushlane forget {task} --force"),
        ("error", "pushlane limit app/shop --none"),
    ]
    assert f"task {task} is damaged in its field quota" in found[0]["what"]


def test_a_damaged_limit_is_taken_away(command: Command) -> None:
    on_store(
        command.folder,
        lambda backend: backend.documents.put("limit", "app/shop", b'{"quota": 2.5}', None),
    )
    refused = command("quota", "--app", "shop", "3")
    assert (refused.exit_code, "limit app/shop --none" in refused.stderr) == (1, True)

    assert command("limit", "app/shop", "--none").exit_code == 0
    assert command("quota", "--app", "shop", "3").exit_code == 0
