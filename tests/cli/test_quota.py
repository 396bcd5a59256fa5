"""`quota` of apps; that of tasks is in test_tasks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pushlane.backends.backend import connect
from pushlane.model.limits import Limit, Limits, Subject, read_limits
from pushlane.settings import Settings
from tests.command import Command


def limits_in(data_dir: Path) -> Limits:
    async def read() -> Limits:
        async with connect(Settings(data_dir=data_dir)) as backend:
            return await read_limits(backend.documents)

    return asyncio.run(read())


def test_an_apps_quota_and_part_are_kept_side_by_side(command: Command, tmp_path: Path) -> None:
    command.submit("high", 1, "--app", "shop")
    first = command("quota", "--app", "shop", "5")
    second = command("quota", "--app", "shop", "--high-part", "0.5")

    assert first.stderr == "app shop sends 5 in its turn\n"
    assert second.stderr == "app shop sends 5 in its turn, and has at most 0.5 of the high level\n"
    assert limits_in(tmp_path / "data") == {Subject("app", "shop"): Limit(quota=5, high_part=0.5)}


def test_a_star_is_every_app(command: Command, tmp_path: Path) -> None:
    ran = command("quota", "--app", "*", "2", "--high-part", "0.25")

    assert "every app without its own sends 2" in ran.stderr
    assert limits_in(tmp_path / "data") == {Subject("app", "*"): Limit(quota=2, high_part=0.25)}


def test_an_apps_quota_and_part_are_shown_and_taken_away(command: Command, tmp_path: Path) -> None:
    command("quota", "--app", "shop", "5", "--high-part", "0.5")
    command("limit", "app/shop", "--a-day", "9")

    shown = command("quota", "--app", "shop")
    ended = command("quota", "--app", "shop", "--none")

    assert shown.stdout == "app shop sends 5 in its turn, and has at most 0.5 of the high level\n"
    assert ended.stderr == "app shop has no quota of its own\n"
    assert limits_in(tmp_path / "data") == {Subject("app", "shop"): Limit(a_day=9)}


def test_an_apps_quota_as_json_is_absent_where_it_has_none(command: Command) -> None:
    command.submit("high", 1, "--app", "shop")
    changed = command("quota", "--app", "shop", "5", "--json")
    shown = command("quota", "--app", "shop", "--json")
    ended = command("quota", "--app", "shop", "--none", "--json")

    assert changed.json == shown.json == {"app": "shop", "quota": 5}
    assert ended.json == {"app": "shop"}
    assert ended.stderr == "app shop has no quota of its own\n"


def test_what_every_app_sends_is_a_number(command: Command) -> None:
    assert (
        command("quota", "--app", "*").stdout == "every app without its own sends 1 in its turn\n"
    )


def test_an_app_that_no_task_has_is_remarked_on(command: Command) -> None:
    assert "no task has the app 'shop' yet" in command("quota", "--app", "shop", "5").stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--app", "shop", "0"), "quota 0 of app 'shop' is not from 1 to 10000"),
        (("--app", "shop", "-3"), "quota -3 of app 'shop' is not from 1 to 10000"),
        (("--app", "shop", "--high-part", "0"), "high part 0 of app 'shop' is not from 0.001 to 1"),
        (("--app", "shop", "--high-part", "1.5"), "high part 1.5 of app 'shop'"),
        (("--app", "", "3"), "app is empty; give its name"),
        (("--app", "shop", "many"), "'many' is not a number of pushes"),
        (("--app", "shop", "task-1", "3"), "--app and task 'task-1' exclude each other"),
        (("--app", "shop", "3", "--none"), "give it alone"),
        (("task-1", "--none"), "--none is for an app; add --app NAME"),
        (("task-1", "3", "--high-part", "0.5"), "is for an app; add --app NAME"),
        (
            (),
            "name a task or an app: pushlane quota TASK N, or pushlane quota --app NAME N",
        ),
        (("task-1",), "there is no task 'task-1'"),
    ],
)
def test_what_cannot_be_is_refused(command: Command, words: tuple[str, ...], told: str) -> None:
    ran = command("quota", *words)

    assert ran.exit_code == 1
    assert told in ran.stderr
