"""`why` as a command, and what `tasks` and `task show` say of sinks that nobody serves."""

from __future__ import annotations

import asyncio
import json

import pytest

import pushlane.diagnosis.look
from pushlane.backends.backend import connect
from pushlane.model.presence import Process, Resting, ServedSink
from pushlane.settings import Settings
from tests.command import Command

SETTINGS = '[sinks.push]\nkind = "null"\n[sinks.sms]\nkind = "null"\n'
BUSY = ServedSink(
    name="push", slots=10, in_flight=10, delivered_per_s={"high": 100.0}, delivery_s=0.1
)

RESTING = Resting(
    "sink push (open)", 1_790_000_000_000, "no connection", again_at_ms=1_790_000_060_000
)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the two looks at a task follow each other without a second between."""
    monkeypatch.setattr(pushlane.diagnosis.look, "_BETWEEN_S", 0.0)


def announce(command: Command, *served: ServedSink) -> None:
    process = Process(
        id="dispatcher-1",
        kind="dispatcher",
        pid=7,
        version="1",
        serves=tuple(one.name for one in served),
        served=served,
        resting=tuple(one.resting for one in served if one.resting),
    )

    async def apply() -> None:
        async with connect(Settings(data_dir=command.folder / "data")) as backend:
            await backend.presence.announce(process, 60.0)

    asyncio.run(apply())


def test_it_names_the_cause_and_what_to_do(command: Command) -> None:
    ran = command("why", command.submit("high", 3))

    assert ran.exit_code == 0
    assert ran.stdout == (
        "no_dispatcher: no dispatcher runs; it goes to sink default\n"
        "  do: pushlane dispatch --sink webhook:URL\n"
    )
    assert "3 pushes left" in ran.stderr


def test_a_task_is_found_by_its_name(command: Command) -> None:
    task = command.submit("high", 3, "--name", "sale")

    assert command("why", "sale", "--json").json["task_id"] == task
    assert command("why", "none").exit_code == 1


def test_as_json_it_has_causes_share_pace_backlog_and_end(command: Command) -> None:
    command.file("pushlane.toml", SETTINGS)
    task = command.submit("high", 300, "--sink", "push")
    command.submit("medium", 900, "--sink", "push")
    announce(command, BUSY)

    found = command("why", task, "--json").json

    assert [cause["cause"] for cause in found["causes"]] == ["slots_full", "sharing"]
    assert set(found["causes"][0]) == {"cause", "detail", "do"}
    assert (found["entitled_share"], found["backlog"], found["eta_s"]) == (0.6667, 300, 4.5)


def test_a_limit_that_cannot_be_read_is_left_out_and_named(command: Command) -> None:
    task = command.submit("high", 3)
    command("limit", "app/shop", "--rate", "5/s")

    async def put() -> None:
        async with connect(Settings(data_dir=command.folder / "data")) as backend:
            await backend.documents.put("limit", "task/new", b'{"rate_per_s": "fast"}', None)

    asyncio.run(put())
    told = "left out, as they cannot be read (pushlane doctor): the limits of task/new"

    assert told in command("why", task).stderr
    assert told in command("submit", "rows.csv", "--level", "high", "--silent", "--dry-run").stderr
    assert command("why", task, "--json").json["unread_limits"] == ["task/new"]
    assert "app/shop" in command("limits").stdout


def test_a_task_that_has_ended_is_told_in_a_word(command: Command) -> None:
    task = command.submit("high", 3)
    command("cancel", task, "--yes")

    ran = command("why", task)

    assert ran.stdout.startswith("cancelled: it is cancelled; 0 delivered, 0 dead of 3\n")
    assert ran.stderr == ""


def test_what_was_cancelled_is_to_be_submitted_again_as_its_lane_is_gone(command: Command) -> None:
    task = command.submit()
    command("cancel", task, "--yes")

    [cause] = command("why", task, "--json").json["causes"]

    assert (cause["cause"], cause["do"]) == ("cancelled", "submit the file again")


@pytest.mark.parametrize("subject", ["sink/default", "app/shop"])
def test_a_subject_that_is_no_task_is_told_where_it_is_shown(
    command: Command, subject: str
) -> None:
    command.submit()

    ran = command("why", subject)

    assert ran.exit_code == 1
    assert f"'{subject}' is not a task" in ran.stderr
    assert "`pushlane why` alone says how sinks stand" in ran.stderr


def test_a_sink_that_rests_is_told_alike_by_tasks_sinks_and_why(command: Command) -> None:
    command.file("pushlane.toml", SETTINGS)
    task = command.submit("high", 3, "--sink", "push")
    announce(command, ServedSink(name="push", slots=10, resting=RESTING))
    told = (
        "sink push rests: no connection, since 2026-09-21 14:13:20 UTC; "
        "next try 2026-09-21 14:14:20 UTC"
    )

    assert told in command("tasks").stderr
    assert told in command("sinks", "list").stderr
    assert told in command("why", task).stdout


def test_a_sink_that_nobody_serves_is_told_beside_lists(command: Command) -> None:
    command.file("pushlane.toml", SETTINGS)
    task = command.submit("high", 3, "--sink", "sms")
    other = command.submit("high", 3, "--sink", "push")
    announce(command, BUSY)
    told = f"task {task} goes to sink sms, which nobody serves: pushlane dispatch --serve sms"

    assert told in command("tasks").stderr
    assert told in command("task", "show", task).stderr
    assert "nobody serves" not in command("task", "show", other).stderr

    more = command.submit("high", 3, "--sink", "sms")
    assert f"task {task} and 1 more go to sink sms" in command("tasks").stderr
    command("cancel", task, "--yes")
    command("pause", more)
    assert "nobody serves" not in command("tasks", "--all").stderr


def test_the_default_sink_beside_named_ones_is_not_to_be_served(command: Command) -> None:
    """A process told to serve it would take it for the sink `null`, which sends nowhere."""
    task = command.submit("high", 3)
    command.file("pushlane.toml", SETTINGS)
    told = "sink default, which the settings do not define"
    do = "set `sink`, or submit it again with --sink NAME"

    assert f"it goes to {told}\n  do: {do}\n" in command("why", task).stdout
    announce(command, BUSY)

    assert f"sink_unserved: it goes to {told}\n  do: {do}\n" in command("why", task).stdout
    assert f"{told}: {do}" in command("tasks").stderr
    assert "--serve default" not in command("tasks").stderr


def test_a_sink_that_was_taken_out_of_the_settings_is_to_be_put_back(command: Command) -> None:
    command.file("pushlane.toml", SETTINGS)
    task = command.submit("high", 3, "--sink", "sms")
    command.file("pushlane.toml", '[sinks.push]\nkind = "null"\n')
    announce(command, BUSY)
    do = "put the table [sinks.sms] back into the settings, then pushlane dispatch --serve sms"

    assert f"do: {do}" in command("why", task).stdout
    assert command("tasks").stderr.rstrip().endswith(do)


def test_dropped_pushes_are_told_with_their_reasons(command: Command) -> None:
    task = command.submit("high", 3)
    command("suppress", "add", command.file("out.csv", "recipient\nuser-1\n"))

    assert command("dispatch", "--drain", "--sink", "null").exit_code == 0

    assert "2 delivered, 0 dead, 1 dropped (suppressed)" in command("why", task).stdout
    assert "  1: suppressed\n" in command("task", "show", task).stdout
    shown = json.loads(command("task", "show", task, "--json").stdout)
    assert (shown["died_of"], shown["dropped_for"]) == ({}, {"suppressed": 1})
