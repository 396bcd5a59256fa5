"""`tasks`, `task show` and the commands that change a task."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

import msgspec
import pytest

import pushlane.producers.replay
from pushlane.backends.backend import connect
from pushlane.cli.render import print_table, soon_text
from pushlane.cli.task_view import COLUMNS
from pushlane.core.task import Level, Task, now_ms
from pushlane.model.names import new_task_id, submit_lease
from pushlane.model.presence import Process, ServedSink, SlowLane
from pushlane.operations.task_views import TaskNow, view_of
from pushlane.settings import Settings
from tests.command import Command


def states(command: Command, *more: str) -> dict[str, str]:
    return {task["id"]: task["state"] for task in command("tasks", "--json", *more).json}


def test_tasks_lists_nothing_in_a_new_store(command: Command) -> None:
    ran = command("tasks")

    assert (ran.exit_code, ran.stdout) == (0, "")
    assert "no unfinished tasks" in ran.stderr


def test_tasks_as_json_lists_what_was_submitted(command: Command) -> None:
    task = command.submit("high", 3, "--name", "sale", "--quota", "2")

    [listed] = command("tasks", "--json").json

    assert listed["id"] == task
    assert (listed["name"], listed["level"], listed["quota"]) == ("sale", "high", 2)
    assert (listed["total"], listed["finished"], listed["percent"]) == (3, 0, 0.0)


def test_show_says_where_a_task_is_counted_as_slow(command: Command, tmp_path: Path) -> None:
    task, other = command.submit("high"), command.submit("high")
    slow = SlowLane(f"task-{task}", 12.5, 1_000)
    process = Process(
        id="dispatcher-1", kind="dispatcher", pid=7, version="1", sinks=("log",), slow=(slow,)
    )
    announce(tmp_path / "data", process)

    shown, beside = command("task", "show", task), command("task", "show", other)

    assert "counted as slow by dispatcher-1 since 1970-01-01" in shown.stderr
    assert "a slot 12.5 times as long as others'" in shown.stderr
    assert "slow" not in beside.stderr


def announce(data_dir: Path, process: Process) -> None:
    async def apply() -> None:
        async with connect(Settings(data_dir=data_dir)) as backend:
            await backend.presence.announce(process, 60.0)

    asyncio.run(apply())


def test_tasks_as_a_table_has_a_line_for_each(command: Command) -> None:
    first, second = command.submit("high"), command.submit("low")

    heading, *lines = command("tasks").stdout.splitlines()

    assert heading.split()[:2] == ["TASK", "NAME"]
    assert [line.split()[0] for line in lines] == [first, second]


def test_a_wide_table_shows_what_was_expired_and_dropped(command: Command) -> None:
    task = command.submit("high", 3)
    command("cancel", task, "--yes")

    heading, line = (row.split() for row in command("tasks", "--all").stdout.splitlines())

    assert heading[-7:-4] == ["EXPIRED", "DROPPED", "%"]
    assert line[-6:-3] == ["0", "3", "100"]


def test_tasks_leaves_cancelled_ones_out_unless_asked(command: Command) -> None:
    task = command.submit()
    command("cancel", task, "--yes")

    assert states(command) == {}
    assert states(command, "--all") == {task: "cancelled"}
    assert states(command, "--state", "cancelled") == {task: "cancelled"}


def test_a_task_that_starts_later_is_scheduled_and_says_when(command: Command) -> None:
    task_id = command.submit("low", 3, "--delay", "2h")
    command.submit("high", 3)

    [listed] = command("tasks", "--state", "scheduled", "--json").json
    table = command("tasks").stdout
    shown = command("task", "show", task_id)

    assert (listed["id"], listed["state"]) == (task_id, "scheduled")
    assert "scheduled" in table
    assert " starts " in table
    assert "state        scheduled" in shown.stdout
    assert len(command("tasks", "--state", "running", "--json").json) == 1


def test_an_unknown_state_is_answered_with_the_nearest(command: Command) -> None:
    ran = command("tasks", "--state", "runing")

    assert ran.exit_code == 1
    assert ran.stderr.startswith("error: unknown state 'runing'")
    assert "did you mean 'running'?" in ran.stderr


def test_task_show_as_json_has_its_settings_and_counts(command: Command) -> None:
    task = command.submit("medium", 4, "--key", "k", "--app", "shop", "--max-attempts", "2")

    shown = command("task", "show", task, "--json").json

    assert (shown["key"], shown["app"], shown["max_attempts"]) == ("k", "shop", 2)
    assert (shown["total"], shown["dropped"]) == (4, 0)


def test_task_show_says_that_a_pooled_task_has_no_quota(command: Command) -> None:
    task = command.submit("low")

    assert "shares a pool lane" in command("task", "show", task).stdout


def test_an_unknown_task_is_answered_with_the_nearest(command: Command) -> None:
    task = command.submit()

    ran = command("task", "show", task[:-1] + "_")

    assert ran.exit_code == 1
    assert ran.stderr.startswith("error: ")
    assert task in ran.stderr


def test_quota_changes_it(command: Command) -> None:
    task = command.submit()

    ran = command("quota", task, "7")

    assert ran.exit_code == 0
    assert command("task", "show", task, "--json").json["quota"] == 7


@pytest.mark.parametrize("quota", ["0", "-1"])
def test_a_quota_under_one_is_refused(command: Command, quota: str) -> None:
    ran = command("quota", command.submit(), quota)

    assert ran.exit_code == 1
    assert f"quota {quota}" in ran.stderr


def test_a_quota_gives_a_pooled_task_a_lane_of_its_own(command: Command) -> None:
    task = command.submit("low")

    ran = command("quota", task, "2", "--json")
    again = command("quota", task, "3")

    moved = (
        f"task {task} sends 2 in its turn; it has a lane of its own now, and its backlog follows"
    )
    assert ran.stderr == f"{moved}\n"
    assert (ran.json["quota"], ran.json["level"], ran.json["pooled"]) == (2, "low", False)
    assert again.stderr == f"task {task} sends 3 in its turn\n"


def test_a_quota_is_shown(command: Command) -> None:
    low, high = command.submit("low"), command.submit("high", 3, "--quota", "2")

    assert command("quota", high).stdout == f"task {high} sends 2 in its turn\n"
    assert command("quota", low).stdout == (
        f"task {low} shares a pool lane, and has no quota; one gives it a lane of its own: "
        f"pushlane quota {low} N\n"
    )
    shown = command("quota", high, "--json").json
    assert (shown["id"], shown["quota"]) == (high, 2)


def test_a_quota_that_is_no_number_is_wrong_usage(command: Command) -> None:
    assert command("quota", command.submit(), "many").exit_code == 2


def test_levels_are_6_3_1_at_first(command: Command) -> None:
    shares = command("levels", "--json").json

    assert {level: share["weight"] for level, share in shares.items()} == {
        "high": 6,
        "medium": 3,
        "low": 1,
    }


def test_levels_changes_the_weights(command: Command) -> None:
    command("levels", "5:4:1")

    assert command("levels", "--json").json["medium"] == {"weight": 4, "percent": 40.0}


def test_a_level_of_weight_0_is_told(command: Command) -> None:
    ran = command("levels", "6:3:0")

    told = "low, of weight 0: sent only while the others have nothing to send\n"
    assert ran.stderr.endswith(told)


@pytest.mark.parametrize("weights", ["6:3", "a:b:c", "0:0:0", "-1:3:1"])
def test_weights_that_cannot_be_are_refused(command: Command, weights: str) -> None:
    ran = command("levels", weights)

    assert ran.exit_code == 1
    assert repr(weights) in ran.stderr


def test_a_reason_cannot_control_the_terminal(command: Command) -> None:
    task = command.submit()
    command("pause", task, "--reason", "red\x1b[31m\nline")

    assert "reason       red [31m line\n" in command("task", "show", task).stdout


def test_pause_keeps_the_reason_and_resume_lets_go(command: Command) -> None:
    task = command.submit()

    command("pause", task, "--reason", "wrong text")
    held = command("task", "show", task, "--json").json
    command("resume", task)

    assert (held["state"], held["reason"]) == ("paused", "wrong text")
    assert states(command) == {task: "running"}


def test_a_reason_for_a_task_that_is_paused_already_is_not_taken_in_silence(
    command: Command,
) -> None:
    task = command.submit()
    command("pause", task, "--reason", "wrong text")

    ran = command("pause", task, "--reason", "another")

    assert f"task {task} is paused already, and its reason stays 'wrong text'; " in ran.stderr


def test_cancel_without_a_terminal_needs_yes(command: Command) -> None:
    task = command.submit()

    ran = command("cancel", task)

    assert ran.exit_code == 1
    assert "--yes" in ran.stderr
    assert states(command) == {task: "running"}


def test_cancel_says_how_many_will_not_go_out(command: Command) -> None:
    ran = command("cancel", command.submit("high", 3), "--yes")

    assert ran.exit_code == 0
    assert "3 pushes will not go out" in ran.stderr


def test_cancelling_again_says_that_it_is_so_already(command: Command) -> None:
    task = command.submit("high", 3)
    command("cancel", task, "--yes")

    ran = command("cancel", task)

    assert ran.exit_code == 0
    assert "cancelled already" in ran.stderr


def test_order_and_dedupe_are_shown(command: Command) -> None:
    task = command.submit("high", 3, "--ordered-by", "recipient", "--dedupe", "recipient")

    shown = command("task", "show", task).stdout.splitlines()

    assert [line.split() for line in shown if line.startswith(("order", "dedupe"))] == [
        ["order", "by", "key"],
        ["dedupe", "recipient"],
    ]


def test_an_unknown_task_is_told_with_where_to_look(command: Command) -> None:
    ran = command("pause", "nobody")

    assert ran.exit_code == 1
    assert "there is no task 'nobody'" in ran.stderr
    assert "pushlane tasks --all" in ran.stderr


def test_a_cancelled_tasks_counts_add_up_to_its_total(command: Command) -> None:
    task = command.submit("high", 3)
    command("cancel", task, "--yes")

    shown = command("task", "show", task, "--json").json

    assert (shown["dropped"], shown["finished"], shown["total"]) == (3, 3, 3)


def test_a_cancelled_task_cannot_be_resumed(command: Command) -> None:
    task = command.submit()
    command("cancel", task, "--yes")

    ran = command("resume", task)

    assert ran.exit_code == 1
    assert "cancelled" in ran.stderr


@pytest.mark.parametrize(
    ("before", "flags", "after"),
    [("low", [], "medium"), ("medium", [], "high"), ("low", ["--to", "high"], "high")],
)
def test_promote_moves_one_up_or_where_it_is_told(
    command: Command, before: str, flags: list[str], after: str
) -> None:
    task = command.submit(before)

    ran = command("promote", task, *flags)

    assert ran.exit_code == 0
    assert command("task", "show", task, "--json").json["level"] == after


def test_demote_moves_one_level_down_unless_told(command: Command) -> None:
    task = command.submit("high")

    assert command("demote", task).exit_code == 0
    assert command("task", "show", task, "--json").json["level"] == "medium"
    assert command("demote", task, "--to", "low").exit_code == 0
    shown = command("task", "show", task, "--json").json
    assert (shown["level"], shown["pooled"]) == ("low", False)


def test_demote_does_not_move_up(command: Command) -> None:
    ran = command("demote", command.submit("low"), "--to", "high")

    assert ran.exit_code == 1
    assert "pushlane promote" in ran.stderr


@pytest.mark.parametrize("verb", [("promote",), ("demote",)])
def test_a_finished_task_changes_its_level_no_more(command: Command, verb: tuple[str]) -> None:
    task = command.submit("medium")
    command("cancel", task, "--yes")

    ran = command(*verb, task)

    assert ran.exit_code == 1
    assert "is cancelled" in ran.stderr
    assert "to send it again: submit the file again" in ran.stderr


@pytest.mark.parametrize(("retention", "kept_s"), [("0", 0), ("90s", 90), ("2h", 7_200)])
def test_a_retention_is_kept_with_the_task(command: Command, retention: str, kept_s: float) -> None:
    task = command.submit("high", 1, "--retention", retention)

    assert command("task", "show", task, "--json").json["retention_s"] == kept_s


def test_a_retention_that_is_no_duration_is_refused(command: Command) -> None:
    path = command.file("rows.csv", "recipient\na\n")

    ran = command("submit", path, "--level", "high", "--retention", "long")

    assert ran.exit_code == 1
    assert "retention 'long'" in ran.stderr


@pytest.mark.parametrize("since", ["yesterday", "2999-01-01"])
def test_a_replay_since_no_time_that_has_passed_is_refused(command: Command, since: str) -> None:
    ran = command("replay", command.submit("high"), "--since", since)

    assert ran.exit_code == 1
    assert since in ran.stderr


async def _interrupted(backend, settings, task_id, *args, begun):
    begun(await backend.registry.get(task_id))
    raise KeyboardInterrupt


@pytest.mark.parametrize("command_line", [["clone"], ["replay", "--since", "1h"]])
def test_an_interrupted_replay_names_the_task_it_leaves(
    command: Command, monkeypatch: pytest.MonkeyPatch, command_line: list[str]
) -> None:
    task = command.submit()
    monkeypatch.setattr(pushlane.producers.replay, command_line[0], _interrupted)

    ran = command(*command_line, task)

    assert ran.exit_code == 130
    assert f"pushlane cancel {task}" in ran.stderr


def half_submitted(data_dir: Path, holder: str = "", key: str = "") -> str:
    """A task whose submit was begun a minute ago; `holder` still works on it."""

    async def make() -> str:
        async with connect(Settings(data_dir=data_dir)) as backend:
            task = Task(
                id=new_task_id(),
                level=Level.HIGH,
                lane="task-x",
                key=key,
                created_at_ms=now_ms() - 60_000,
            )
            await backend.registry.add(task)
            if holder:
                await backend.lease.acquire(submit_lease(task.id), holder, 600)
            return task.id

    return asyncio.run(make())


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("k", "run it again with the same --key, or cancel"),
        ("", "cannot go on without a --key: cancel the task"),
    ],
)
def test_a_task_whose_submit_stopped_half_way_is_stalled_and_says_what_to_do(
    command: Command, key: str, told: str
) -> None:
    task = half_submitted(command.folder / "data", key=key)

    shown = command("task", "show", task).stdout

    assert "stalled" in shown
    assert told in shown


def test_a_task_that_is_being_submitted_is_not_stalled(command: Command) -> None:
    task = half_submitted(command.folder / "data", holder="submit")

    assert "stalled" not in command("task", "show", task).stdout


def announced(command: Command, **rates: float) -> None:
    """A dispatcher is there which delivers 100 a second, of these tasks so many."""

    async def announce() -> None:
        served = ServedSink(
            name="default", slots=10, in_flight=10, delivery_s=0.1, tasks_per_s={**rates}
        )
        process = Process(
            id="d", kind="dispatcher", pid=7, version="1", serves=("default",), served=(served,)
        )
        async with connect(Settings(data_dir=command.folder / "data")) as backend:
            await backend.presence.announce(process, 60.0)

    asyncio.run(announce())


def test_tasks_says_how_fast_each_goes_and_when_it_ends(command: Command) -> None:
    fast, slow, paused = (command.submit("high", 300) for _ in range(3))
    command("pause", paused)
    announced(command, **{fast: 50.0, slow: 0.25})

    rows = [row.split() for row in command("tasks").stdout.splitlines()]
    shown = {row[0]: row for row in rows[1:]}
    found = {task["id"]: task for task in command("tasks", "--json").json}

    assert rows[0][-5:-1] == ["%", "RATE", "ENDS", "AGE"]
    assert shown[fast][-5:-1] == ["0", "50/s", "in", "6s"]
    assert shown[slow][-5:-1] == ["0", "0.25/s", "in", "6s"]
    assert shown[paused][-4:-1] == ["0", "-", "-"]
    assert (found[fast]["rate_per_s"], found[fast]["eta_s"]) == (50.0, 6.0)
    assert not {"rate_per_s", "eta_s"} & found[paused].keys()
    fields = dict(
        row.split(maxsplit=1) for row in command("task", "show", fast).stdout.splitlines()
    )
    assert (fields["rate"], fields["ends"]) == ("50/s", "in 6s")


def test_what_nobody_tells_of_a_tasks_pace_is_a_dash_and_null(command: Command) -> None:
    command.submit("high", 300)

    [found] = command("tasks", "--json").json

    assert not {"rate_per_s", "eta_s"} & found.keys()
    assert " - " in command("tasks").stdout.splitlines()[1]


def test_eighty_columns_keep_the_dead_the_end_and_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Task(id="m85ebqg5cpmyha", level=Level.HIGH, lane="l", name="Black Friday", total=10_000)
    view = TaskNow(
        **msgspec.structs.asdict(view_of(made)),
        delivered=4_000,
        dead=1_234,
        expired=0,
        dropped=0,
        finished=5_234,
        percent=52.34,
        shown_state="running",
        shown_reason="1,234 died, most often HTTP 404",
        died_of={},
        expired_for={},
        dropped_for={},
        rate_per_s=510.0,
        eta_s=4_000.0,
    )
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((80, 24)))
    monkeypatch.setenv("TERM", "dumb")
    print_table(COLUMNS, [view])
    said = capsys.readouterr()

    heading, row = said.out.splitlines()
    assert heading.split() == ["TASK", "NAME", "LEVEL", "STATE", "DEAD", "%", "ENDS", "REASON"]
    assert "in 67m 1,234 died, most" in row
    assert said.err.startswith(
        "hidden: QUOTA, TOTAL, FINISHED, DELIVERED, EXPIRED, DROPPED, RATE, AGE;"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "in 1s"), (40, "in 40s"), (119, "in 119s"), (240, "in 4m"), (7_200, "in 2h")],
)
def test_an_end_is_told_in_one_unit(seconds: float, text: str) -> None:
    assert soon_text(seconds) == text
