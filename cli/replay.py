"""`replay` and `clone`: send again what a task has published, as a new task."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.errors import note
from cli.flags import Flags, JsonFlag, with_flags
from cli.render import print_json
from cli.run import on_backend
from cli.task_view import task_fields
from cli.tasks import TaskId
from cli.times import parse_since
from lanes.life import now_ms
from producers import replay as replays
from producers.replay import Replayed


def register(app: typer.Typer) -> None:
    app.command()(with_flags(replay))
    app.command()(with_flags(clone))


def replay(
    flags: Flags,
    task: TaskId,
    since: Annotated[
        str, typer.Option(metavar="2h|TIME", help="From this long ago, or this ISO time, on.")
    ],
    as_json: JsonFlag = False,
) -> None:
    """Send again what a task has published since a time, as a new task, and print its id."""
    since_ms = parse_since(since, now_ms())
    settings = flags.settings()
    made = on_backend(settings, lambda backend: replays.replay(backend, settings, task, since_ms))
    _show(made, as_json)


def clone(flags: Flags, task: TaskId, as_json: JsonFlag = False) -> None:
    """Send all pushes of a task again, as a new task, and print its id."""
    settings = flags.settings()
    made = on_backend(settings, lambda backend: replays.clone(backend, settings, task))
    _show(made, as_json)


def _show(made: Replayed, as_json: bool) -> None:
    note(f"{made.published:,} pushes on the lane, level {made.task.level}")
    if as_json:
        task = task_fields(made.task)
        print_json({"task_id": made.task.id, "published": made.published, "task": task})
    else:
        typer.echo(made.task.id)
