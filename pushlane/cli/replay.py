"""`replay` and `clone` send again what a task has published, as a new task."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from pushlane.backends.backend import Backend
from pushlane.cli.errors import INTERRUPTED, note
from pushlane.cli.flags import Flags, JsonFlag, on_backend, option
from pushlane.cli.parsing import pushes_text
from pushlane.cli.render import picked, print_json
from pushlane.cli.task_view import task_fields
from pushlane.cli.tasks import TaskId
from pushlane.core.task import Task, now_ms
from pushlane.model.times import parse_since
from pushlane.producers import replay as replays
from pushlane.producers.replay import Begun, ReplayedTask
from pushlane.producers.validate import NOTHING
from pushlane.settings import Settings


def replay(
    flags: Flags,
    task: TaskId,
    since: Annotated[str, option("2h|TIME", "From this long ago, or this ISO time, on.")],
    as_json: JsonFlag = False,
) -> None:
    """Send again what a task has published since a time, as a new task, and print its id."""
    since_ms = parse_since(since, now_ms())
    settings = flags.settings()
    _run(
        settings,
        lambda backend, begun: replays.replay(backend, settings, task, since_ms, begun=begun),
        as_json,
    )


def clone(flags: Flags, task: TaskId, as_json: JsonFlag = False) -> None:
    """Send all pushes of a task again, as a new task, and print its id."""
    settings = flags.settings()
    _run(
        settings,
        lambda backend, begun: replays.clone(backend, settings, task, begun=begun),
        as_json,
    )


def _run(
    settings: Settings, work: Callable[[Backend, Begun], Awaitable[ReplayedTask]], as_json: bool
) -> None:
    begun: list[Task] = []
    try:
        done = on_backend(settings, lambda backend: work(backend, begun.append))
    except KeyboardInterrupt:
        if begun:
            [new] = begun
            note(
                f"interrupted; task {new.id} is not complete and goes on sending what it has. It "
                f"cannot be continued: pushlane cancel {new.id}, and start over"
            )
        else:
            note("interrupted; nothing was submitted")
        raise typer.Exit(INTERRUPTED) from None
    note(f"{pushes_text(done.published)} on the lane, level {done.task.level}")
    if done.empty:
        note(f"warning: {pushes_text(done.empty)} with {NOTHING}, sent as they were")
    if as_json:
        counts = picked(done, "published", "empty")
        print_json({"task_id": done.task.id, **counts, "task": task_fields(done.task)})
    else:
        typer.echo(done.task.id)
