"""`replay` and `clone` send again what a task has published, as a new task."""

from __future__ import annotations

from typing import Annotated

import typer

from pushlane.cli.doing import done
from pushlane.cli.errors import INTERRUPTED, note
from pushlane.cli.flags import Flags, JsonFlag, option
from pushlane.cli.parsing import pushes_text
from pushlane.cli.render import print_json
from pushlane.cli.tasks import TaskId
from pushlane.core.task import now_ms
from pushlane.model.times import parse_since
from pushlane.operations.replays import CloneTask, ReplayTask
from pushlane.operations.views import plain
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
    _run(flags.settings(), ReplayTask(task=task, since_ms=since_ms), as_json)


def clone(flags: Flags, task: TaskId, as_json: JsonFlag = False) -> None:
    """Send all pushes of a task again, as a new task, and print its id."""
    _run(flags.settings(), CloneTask(task=task), as_json)


def _run(settings: Settings, wanted: CloneTask | ReplayTask, as_json: bool) -> None:
    begun: list[str] = []
    try:
        made = done(settings, wanted, begun=begun.append)
    except KeyboardInterrupt:
        if begun:
            [new] = begun
            note(
                f"interrupted; task {new} is not complete and goes on sending what it has. It "
                f"cannot be continued: pushlane cancel {new}, and start over"
            )
        else:
            note("interrupted; nothing was submitted")
        raise typer.Exit(INTERRUPTED) from None
    note(f"{pushes_text(made.published)} on the lane, level {made.task.level}")
    if made.empty:
        note(f"warning: {pushes_text(made.empty)} with {NOTHING}, sent as they were")
    if as_json:
        print_json(plain(made))
    else:
        typer.echo(made.task_id)
