"""`reschedule`: what it changes, what it says of that, and what it refuses."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from pushlane.backends.backend import connect
from pushlane.producers.replay import retained_pushes
from pushlane.settings import Settings
from tests.command import Command

AHEAD = r"in \d+d( \d+[hms])?"
"""How long until a time, in its two largest parts; a part of nothing is left out."""


def fields_of(command: Command, task: str) -> tuple[int, int, str, str]:
    shown = command("task", "show", task, "--json").json
    return shown["not_before_ms"], shown["expires_at_ms"], shown["quiet"], shown["zone"]


def test_start_and_expiry_are_told_in_utc_and_from_now_on(command: Command) -> None:
    task = command.submit()

    ran = command(
        "reschedule", task, "--not-before", "2999-01-31T18:00+01:00", "--expires", "2999-02-01"
    )

    assert ran.exit_code == 0
    assert re.fullmatch(
        rf"task {task} starts at 2999-01-31 17:00:00 UTC \({AHEAD}\), "
        rf"expires at 2999-0[12]-\d\d \d\d:\d\d:00 UTC \({AHEAD}\)",
        ran.stderr.splitlines()[0],
    )
    assert ran.stderr.splitlines()[1:] == [
        "what it has not sent waits for that; what is on its way to the sink ends"
    ]
    assert command("tasks", "--json").json[0]["shown_state"] == "scheduled"


def test_a_start_at_once_tells_what_becomes_of_what_waits(command: Command) -> None:
    task = command.submit("low", 3, "--delay", "2h", "--quiet", "22:00-08:00", "--expires", "4h")

    ran = command("reschedule", task, "--not-before", "NOW", "--quiet", "none", "--expires", "none")

    assert ran.stderr == (
        f"task {task} starts now, does not expire, has no quiet hours\n"
        "what waits for its old times is checked within a minute, once a dispatcher runs\n"
    )
    assert fields_of(command, task) == (0, 0, "", "")


def test_a_delay_of_nothing_is_a_start_at_once(command: Command) -> None:
    task = command.submit("high", 3, "--delay", "2h")

    assert command("reschedule", task, "--delay", "0s").stderr.startswith(f"task {task} starts now")


def test_quiet_hours_of_a_paused_task(command: Command) -> None:
    task = command.submit()
    command("pause", task)

    ran = command("reschedule", task, "--quiet", "22:00-8:00", "--zone", "Asia/Tokyo")

    assert ran.stderr == (
        f"task {task} is quiet from 22:00 to 08:00 (Asia/Tokyo)\n"
        f"it is paused; go on with: pushlane resume {task}\n"
    )
    assert fields_of(command, task) == (0, 0, "22:00-08:00", "Asia/Tokyo")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            (),
            "there is nothing to change; give --not-before, --delay, --expires, --quiet or --zone",
        ),
        (
            ("--not-before", "now", "--delay", "5m"),
            "--not-before and --delay both say when the task starts; give one of them",
        ),
        (
            ("--not-before", "2020-01-01"),
            "start '2020-01-01' has passed; give --not-before now to start now",
        ),
        (
            ("--not-before", "5m"),
            "start '5m' is neither a time of day like 09:00 nor an ISO time like "
            "2030-01-31T18:00+01:00; for a duration use --delay",
        ),
        (
            ("--delay", "3h"),
            "the task would expire 3600 s before it starts: nothing would be sent; give a later "
            "expiry or an earlier start",
        ),
        (
            ("--expires", "soon"),
            "expiry 'soon' is neither a duration like 90s, 2h or 1d12h nor an ISO time like "
            "2030-01-31T18:00+01:00",
        ),
        (("--quiet", "night"), "quiet hours 'night' are not of the form HH:MM-HH:MM; try"),
        (("--zone", "Europe/Berlin"), "a time zone has no effect without quiet hours; add --quiet"),
        (("--quiet", "22:00-08:00", "--zone", "Berlin"), "unknown time zone 'Berlin'; use an"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    command: Command, options: tuple[str, ...], said: str
) -> None:
    task = command.submit("high", 3, "--expires", "2h")
    before = fields_of(command, task)

    ran = command("reschedule", task, *options)

    assert ran.exit_code == 1
    assert ran.stderr.startswith(f"error: {said}")
    assert fields_of(command, task) == before


def test_a_finished_task_is_refused_with_what_to_do_instead(command: Command) -> None:
    task = command.submit("high", 3, "--key", "sale")
    command("cancel", task, "--yes")

    ran = command("reschedule", task, "--not-before", "now")

    assert ran.exit_code == 1
    assert ran.stderr == (
        f"error: task {task} is cancelled: a finished task cannot be rescheduled; to send it "
        "again: submit the file again under another key, such as sale-2\n"
    )


def test_a_submit_that_goes_on_makes_the_pushes_that_it_would_have_made(command: Command) -> None:
    rows = command.file("rows.csv", "recipient\nanna\nbert\n")
    submit = ("submit", rows, "--level", "high", "--title", "Hi", "--key", "k", "--expires", "2h")
    task = command(*submit, "--first", "1").stdout.strip()
    assert command("reschedule", task, "--expires", "5h").exit_code == 0

    assert command(*submit).stdout.strip() == task

    [first_ms, second_ms] = asyncio.run(expiries(command.folder / "data", task))
    assert first_ms == second_ms < command("task", "show", task, "--json").json["expires_at_ms"]


async def expiries(store: Path, task: str) -> list[int]:
    """What the task's pushes carry, as they lie on its lane."""
    async with connect(Settings(data_dir=store)) as backend:
        found = retained_pushes(backend, await backend.registry.get(task))
        return [push.expires_at_ms async for push in found]
