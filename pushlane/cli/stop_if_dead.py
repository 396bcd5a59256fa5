"""`stop-if-dead` changes at which share of dead pushes a task is paused."""

from __future__ import annotations

from typing import Annotated

import typer

from pushlane.cli.completion import complete_task
from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, on_backend, with_flags
from pushlane.core.task import Task
from pushlane.model.stop_rule import OFF


def register(app: typer.Typer) -> None:
    app.command("stop-if-dead")(with_flags(stop_if_dead))


def stop_if_dead(
    flags: Flags,
    task: Annotated[
        str,
        typer.Argument(metavar="TASK", help="Its id, key or name.", autocompletion=complete_task),
    ],
    rule: Annotated[
        str, typer.Argument(metavar="5%|off", help="The share of dead pushes that pauses it.")
    ],
) -> None:
    """Pause a task when more of its pushes die than this, counted from now on.

    One that is paused stays so. The limit that it has already changes nothing, unless it paused it.
    """
    changed = on_backend(flags.settings(), lambda backend: backend.set_stop_if_dead(task, rule))
    note(f"task {changed.id} stops if: {stop_text(changed)}")


def stop_text(task: Task) -> str:
    """Return how many dead pushes stop a task, for people."""
    if task.stop_if_dead == OFF:
        return "off"
    again = "; it did, and does not again" if task.stopped else ""
    return f"more than {task.stop_if_dead} are dead{again}"
