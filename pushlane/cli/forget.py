"""`forget` removes tasks that have ended before their time is over."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated

import typer

from pushlane.backends.backend import Backend
from pushlane.cli.completion import complete_task
from pushlane.cli.errors import confirm, note
from pushlane.cli.flags import Flags, YesFlag, add_commands, on_backend
from pushlane.cli.task_view import TaskView, views_of
from pushlane.cli.unreadable import remove_unreadable
from pushlane.core.errors import UnknownFormat, UserError
from pushlane.core.task import Task
from pushlane.model import task_changes
from pushlane.producers.dead import DeadLetters, Selection

_LEAVE_S = 0.25
_LEAVE_TRIES = 40


def register(app: typer.Typer) -> None:
    add_commands(app, forget)


def forget(
    flags: Flags,
    tasks: Annotated[
        list[str],
        typer.Argument(
            metavar="TASK...", help="Id, key or name of each.", autocompletion=complete_task
        ),
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Remove those that cannot be read, too.")
    ] = False,
    yes: YesFlag = False,
) -> None:
    """Remove tasks that have ended, with their counts, keys, lanes and dead pushes.

    One that cannot be read is removed with --force, whether it has ended or not.
    """
    settings = flags.settings()
    faults, views = on_backend(settings, partial(_load, words=tasks))
    if faults and not force:
        raise next(iter(faults.values()))
    for view in views:  # refuse before anybody is asked
        task_changes.check_forgettable(view.task, view.status.state)
    wanted = {view.task.id: view.task for view in views}
    if wanted and not yes:
        _confirm_forget(list(wanted.values()))
    if faults:
        remove_unreadable(settings, list(faults.values()), yes=yes)
    if wanted:
        on_backend(settings, partial(_forget_all, tasks=list(wanted.values())))


async def _load(
    backend: Backend, words: list[str]
) -> tuple[dict[str, UnknownFormat], list[TaskView]]:
    """Return by id why tasks cannot be read, and all others."""
    faults: dict[str, UnknownFormat] = {}
    tasks: dict[str, Task] = {}
    for word in words:
        try:
            task = await backend.registry.get(word)
        except UnknownFormat as error:
            faults[error.task_id] = error
        else:
            tasks[task.id] = task
    return faults, await views_of(backend, list(tasks.values()), await backend.presence.list())


def _confirm_forget(tasks: list[Task]) -> None:
    """Ask the user, since a task whose key is forgotten can be submitted again."""
    what = f"task {tasks[0].id}" if len(tasks) == 1 else f"{len(tasks)} tasks"
    keyed = " What has a key can then be submitted again." if any(t.key for t in tasks) else ""
    question = f"Forget {what}, with its counts, its lane and its dead pushes?{keyed}"
    confirm(f"forgetting {what}", question, f"{what}: not forgotten")


async def _forget_all(backend: Backend, tasks: list[Task]) -> None:
    for task in tasks:
        await DeadLetters(backend).purge(Selection(task=task.id))
        await _forget(backend, task)
        note(f"task {task.id} is forgotten")


async def _forget(backend: Backend, task: Task) -> None:
    """Forget a task once the readers of its lanes have left, a second or two after its end."""
    for _ in range(_LEAVE_TRIES):
        if await backend.forget(task):
            return
        await asyncio.sleep(_LEAVE_S)
    raise UserError(
        f"task {task.id} is not forgotten: somebody still reads its lane; see which dispatchers "
        "run (`pushlane processes`), then try again"
    )
