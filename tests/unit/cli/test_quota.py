"""`quota` of apps; that of tasks is in test_tasks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pushlane.lanes.backend import connect
from pushlane.lanes.limits import Limit, Limits, Subject, read_limits
from pushlane.lanes.settings import Settings
from tests.command import Command


def limits_in(data_dir: Path) -> Limits:
    async def read() -> Limits:
        async with connect(Settings(data_dir=data_dir)) as backend:
            return await read_limits(backend.documents)

    return asyncio.run(read())


def test_an_apps_quota_and_part_are_kept_side_by_side(command: Command, tmp_path: Path) -> None:
    first = command("quota", "--app", "shop", "5")
    second = command("quota", "--app", "shop", "--high-part", "0.5")

    assert first.stderr == "app shop sends 5 in its turn\n"
    assert second.stderr == "app shop sends 5 in its turn, and has at most 0.5 of the high level\n"
    assert limits_in(tmp_path / "data") == {Subject("app", "shop"): Limit(quota=5, high_part=0.5)}


def test_a_star_is_every_app(command: Command, tmp_path: Path) -> None:
    ran = command("quota", "--app", "*", "2", "--high-part", "0.25")

    assert "every app without its own sends 2" in ran.stderr
    assert limits_in(tmp_path / "data") == {Subject("app", "*"): Limit(quota=2, high_part=0.25)}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--app", "shop", "0"), "quota 0 of app 'shop' is not from 1 to 10000"),
        (("--app", "shop", "-3"), "quota -3 of app 'shop' is not from 1 to 10000"),
        (("--app", "shop", "--high-part", "0"), "high part 0 of app 'shop' is not from 0.001 to 1"),
        (("--app", "shop", "--high-part", "1.5"), "high part 1.5 of app 'shop'"),
        (("--app", "", "3"), "app is empty; name who sends"),
        (("--app", "shop", "many"), "'many' is no number of pushes"),
        (("--app", "shop", "task-1", "3"), "--app and task 'task-1' exclude each other"),
        (("--app", "shop"), "nothing is said of app 'shop'; give a number"),
        (("task-1", "3", "--high-part", "0.5"), "no app is named; add --app NAME"),
        (("task-1",), "takes a task and a number: pushlane quota TASK N"),
    ],
)
def test_what_cannot_be_is_refused(command: Command, words: tuple[str, ...], told: str) -> None:
    ran = command("quota", *words)

    assert ran.exit_code == 1
    assert told in ran.stderr
