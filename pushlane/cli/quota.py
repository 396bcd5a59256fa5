"""`quota` changes how much a task or an app sends in its turn, and an app's part of high."""

from __future__ import annotations

from typing import Annotated

import typer

from pushlane.backends.backend import Backend
from pushlane.cli.completion import complete_task
from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, add_commands, on_backend
from pushlane.cli.known import unknown_text
from pushlane.core.errors import BadInput
from pushlane.core.turns import EVERY_APP
from pushlane.lanes.app_share import app_share, clear_app_share, set_app_share
from pushlane.model import task_changes
from pushlane.model.limits import Limit, Subject

_NEGATIVES = {"ignore_unknown_options": True}  # the answer says what is wrong with it


def register(app: typer.Typer) -> None:
    add_commands(app, quota, context_settings=_NEGATIVES)


def quota(
    flags: Flags,
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="[TASK]",
            help="Its id, key or name; left out with --app.",
            autocompletion=complete_task,
        ),
    ] = None,
    pushes: Annotated[
        int | None, typer.Argument(metavar="[N]", help="Pushes a turn, from 1.")
    ] = None,
    app: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of this app; '*' for every other one.")
    ] = None,
    high_part: Annotated[
        float | None,
        typer.Option(
            metavar="PART", help="With --app: what it may have of the high level, as 0.5."
        ),
    ] = None,
    none: Annotated[
        bool, typer.Option("--none", help="With --app: take its quota and its part away.")
    ] = False,
) -> None:
    """Change how many pushes a task or an app sends in its turn, from now on.

    With --app alone it shows the app's quota, and its part of the high level.
    """
    if app is not None:
        _of_app(flags, app, _number(task, pushes), high_part, none)
    elif none:
        raise BadInput("--none is of an app, and no app is named; add --app NAME")
    elif high_part is not None:
        raise BadInput("--high-part is of an app, and no app is named; add --app NAME")
    elif task is None or pushes is None:
        raise BadInput(
            "a quota takes a task and a number: pushlane quota TASK N; of an app: pushlane quota "
            "--app NAME N"
        )
    else:
        _of_task(flags, task, pushes)


def _of_task(flags: Flags, task: str, pushes: int) -> None:
    edit = task_changes.set_quota(pushes)
    changed = on_backend(flags.settings(), lambda backend: backend.registry.change(task, edit))
    note(f"task {changed.id} sends {changed.quota} in its turn")


def _of_app(
    flags: Flags, app: str, pushes: int | None, high_part: float | None, none: bool
) -> None:
    is_shown = pushes is None and high_part is None
    if none and not is_shown:
        raise BadInput("--none takes the quota and the part away; give it alone, or leave it out")
    settings = flags.settings()

    async def work(backend: Backend) -> tuple[Limit, str]:
        documents = backend.documents
        if none:
            return await clear_app_share(documents, app), ""
        if is_shown:
            limit = await app_share(documents, app)
        else:
            limit = await set_app_share(documents, app, quota=pushes, high_part=high_part)
        return limit, await unknown_text(backend, settings, Subject("app", app))

    limit, remark = on_backend(settings, work, create=not (is_shown or none))
    if is_shown and not none:
        typer.echo(_share_text(app, limit))
    else:
        note(_share_text(app, limit))
    if remark:
        note(remark)


def _number(first: str | None, second: int | None) -> int | None:
    """Return the number that stands where a task would stand otherwise."""
    if first is None:
        return None
    if second is not None:
        raise BadInput(f"--app and task {first!r} exclude each other; give one of them")
    try:
        return int(first)
    except ValueError:
        raise BadInput(
            f"{first[:40]!r} is no number of pushes; of an app: pushlane quota --app NAME N"
        ) from None


def _share_text(app: str, limit: Limit) -> str:
    is_every = app == EVERY_APP
    who = "every app without its own" if is_every else f"app {app}"
    quota = limit.quota or (1 if is_every else None)
    turn = "has no quota of its own" if quota is None else f"sends {quota} in its turn"
    if limit.high_part is None:
        return f"{who} {turn}"
    return f"{who} {turn}, and has at most {limit.high_part:g} of the high level"
