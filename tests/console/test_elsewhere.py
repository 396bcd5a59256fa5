"""What a page says of the command line is so: each command it shows takes what it is shown with."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from pushlane.console.pages import elsewhere
from pushlane.core.task import Level
from pushlane.operations.dead import ListDead, RetryDead
from pushlane.operations.looks import GetPush, GetResults, WhyTask
from pushlane.operations.operation import Operation
from pushlane.operations.processes import ListAudit, ListProcesses
from pushlane.operations.shares import SetLimit
from pushlane.operations.tasks import (
    CancelTask,
    DemoteTask,
    GetTask,
    PauseTask,
    PromoteTask,
    ResumeTask,
    SetQuota,
)
from tests.command import Command

SHOWN: tuple[Operation[Any], ...] = (
    GetTask(task="TASK"),
    WhyTask(task="TASK"),
    GetResults(task="TASK"),
    GetPush(push="TASK-1"),
    ListDead(task="TASK", limit=20),
    ListAudit(find="a b", limit=50),
    ListProcesses(),
    PauseTask(task="TASK", reason="late"),
    ResumeTask(task="TASK"),
    CancelTask(task="TASK"),
    PromoteTask(task="TASK", level=Level.HIGH),
    DemoteTask(task="TASK", level=Level.LOW),
    SetQuota(task="TASK", quota=5),
    SetLimit(subject="task/TASK", rate_per_s="100/s"),
)


@pytest.mark.parametrize("shown", SHOWN, ids=lambda one: type(one).__name__)
def test_a_command_takes_what_it_is_shown_with(command: Command, shown: Operation[Any]) -> None:
    task = command.submit("medium", 3)
    words = shlex.split(elsewhere(shown).command.replace("TASK", task))[1:]
    if isinstance(shown, ResumeTask):
        command("pause", task)
    more = ("--yes",) if isinstance(shown, CancelTask) else ()

    done = command(*words, *more)

    assert done.exit_code == 0, done.stderr


def test_a_command_that_sends_the_dead_again_is_there(command: Command) -> None:
    words = shlex.split(elsewhere(RetryDead(task=command.submit("medium", 3))).command)[1:]

    assert "no dead push" in command(*words).stderr + command(*words).stdout


def test_what_is_asked_over_http_is_quoted_for_the_shell() -> None:
    odd = elsewhere(PauseTask(task="a b", reason="it's $HOME"))
    words = shlex.split(odd.curl)

    assert odd.command == "pushlane pause 'a b' --reason 'it'\"'\"'s $HOME'"
    assert words[3] == "$URL/v1/tasks/a%20b/pause"
    assert words[-1] == '{"reason":"it\'s $HOME"}'
