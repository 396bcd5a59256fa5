"""Commands on tasks that exist: look at them, change what they may send and when, forget them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import typer

from pushlane.cli.doing import done, on_client
from pushlane.cli.errors import confirm, note
from pushlane.cli.flags import (
    Flags,
    Group,
    JsonFlag,
    WideFlag,
    YesFlag,
    argument,
    option,
    switch,
)
from pushlane.cli.parsing import (
    complete_level,
    complete_state,
    complete_task,
    parse_level,
    parse_word,
    pushes_text,
)
from pushlane.cli.preview import PreviewFlag, show_preview
from pushlane.cli.processes import resting_text, seen_processes, slow_text, unserved_text
from pushlane.cli.render import print_fields, print_json, print_table
from pushlane.client.connection import Connection
from pushlane.core.errors import BadInput, TaskConflict, UnknownFormat
from pushlane.core.task import Level, State
from pushlane.model import task_changes
from pushlane.model.presence import Process
from pushlane.model.states import STATES
from pushlane.model.task_bytes import unread_text
from pushlane.operations.shares import GetLevels, SetLevels
from pushlane.operations.task_views import TaskNow
from pushlane.operations.tasks import (
    ANY_STATE,
    CancelTask,
    DemoteTask,
    ForgetTask,
    GetTask,
    ListTasks,
    PauseTask,
    PromoteTask,
    ResumeTask,
)
from pushlane.operations.unreadable import (
    GetUnreadable,
    ListUnreadable,
    RemoveUnreadable,
    UnreadableTask,
)
from pushlane.operations.views import plain
from pushlane.settings import Settings


def remove_unreadable(settings: Settings, faults: Sequence[UnknownFormat], *, yes: bool) -> None:
    """Remove these tasks that cannot be read, with all that is theirs, after a question.

    Raises:
        TaskConflict: a live process of a newer version may read them.
        UserError: the answer is no, or there is nobody to ask.
    """
    task_ids = [fault.task_id for fault in faults]
    for found in on_client(settings, partial(_unreadable, task_ids=task_ids)):
        if found.kept_for:  # before anybody is asked
            raise TaskConflict(found.kept_for)
    for fault in faults:
        if not yes:
            what = f"task {fault.task_id}"
            question = (
                f"{fault.fault}.\nRemove it, with its key, its counts, its lanes and its dead "
                "pushes? What it has not sent will not go out."
            )
            confirm(f"removing {what}", question, f"{what} is not removed")
    on_client(settings, partial(_remove_all, task_ids=task_ids))


async def _unreadable(client: Connection, task_ids: Sequence[str]) -> list[UnreadableTask]:
    return [await client.do(GetUnreadable(task=task_id)) for task_id in task_ids]


async def _remove_all(client: Connection, task_ids: Sequence[str]) -> None:
    for task_id in task_ids:
        is_gone = (await client.do(RemoveUnreadable(task=task_id))).is_lane_gone
        later = "" if is_gone else "; its lane goes in about 10 minutes, as somebody still reads it"
        note(f"task {task_id} could not be read: it is removed, and sends nothing more{later}")


TaskId = Annotated[str, argument("TASK", "Its id, key or name.", autocompletion=complete_task)]

_LISTED = 1_000
_MORE = (
    "these are the newest {:,}; narrow it with --find, --app, --level or --state, or see more with "
    "--limit"
)

LevelOption = Annotated[
    str | None, option("high|medium|low", "Only of this level.", autocompletion=complete_level)
]
LimitOption = Annotated[
    int | None,
    option(
        "N", f"The newest so many; 0 for all. {_LISTED:,} unless given, all with --json.", min=0
    ),
]


def tasks(
    flags: Flags,
    state: Annotated[
        list[str] | None,
        option("STATE", "Only in this state (repeatable).", autocompletion=complete_state),
    ] = None,
    show_all: Annotated[bool, switch("--all", "Finished ones too.")] = False,
    find: Annotated[str, option("TEXT", "Only if id, key or name hold this.")] = "",
    app: Annotated[str, option("APP", "Only of this app.")] = "",
    level: LevelOption = None,
    limit: LimitOption = None,
    wide: WideFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """List the tasks that are not finished, oldest first."""
    from pushlane.cli.task_view import COLUMNS  # which loads how waits are told

    words = [parse_word(word, "state", STATES) for word in state or []]
    if words and show_all:
        raise BadInput("--all and --state exclude each other; give one of them")
    limit = limit if limit is not None else 0 if as_json else _LISTED
    wanted = ListTasks(
        state=(ANY_STATE,) if show_all else tuple(words),
        find=find,
        app=app,
        level=None if level is None else parse_level(level),
        limit=limit and limit + 1,  # one more tells that there are more
    )

    async def load(client: Connection) -> tuple[list[TaskNow], list[Process], list[UnreadableTask]]:
        return await client.do(wanted), await seen_processes(client), await _unread_there(client)

    settings = flags.settings()
    views, processes, unread = on_client(settings, load)
    is_cut = bool(limit) and len(views) > limit
    views = views[-limit:] if is_cut else views
    if as_json:
        print_json([plain(view) for view in views])
    elif views:
        print_table(COLUMNS, views, wide=wide, more="--wide shows all")
    else:
        is_chosen = state or find or app or level
        what = "no such tasks" if is_chosen else "no tasks" if show_all else "no unfinished tasks"
        note(f"{what} {settings.place}")
    if is_cut:
        note(_MORE.format(limit))
    for line in (*_unread_text(unread), *resting_text(processes), *unserved_text(views, settings)):
        note(line)


async def _unread_there(client: Connection) -> list[UnreadableTask]:
    """Return the tasks that a server cannot read, if a list lacks some; a backend logs its own."""
    if client.remote is None or not client.remote.unread:
        return []
    return await client.do(ListUnreadable())


def _unread_text(found: Sequence[UnreadableTask]) -> list[str]:
    if len(found) < 2:
        return [f"{one.fault}; {one.do}" for one in found]
    damaged = sum(one.damaged for one in found)
    return [unread_text(damaged, len(found) - damaged)]


def show(flags: Flags, task: TaskId, as_json: JsonFlag = False) -> None:
    """Show all there is to know about a task."""
    from pushlane.cli.task_view import fields_of

    async def load(client: Connection) -> tuple[TaskNow, list[Process]]:
        return await client.do(GetTask(task=task)), await seen_processes(client)

    settings = flags.settings()
    view, processes = on_client(settings, load)
    if as_json:
        print_json(plain(view))
        return
    print_fields(fields_of(view))
    for line in (
        *resting_text(processes),
        *slow_text(view),
        *unserved_text([view], settings),
    ):
        note(line)


def levels(
    flags: Flags,
    weights: Annotated[
        str | None, argument("[HIGH:MEDIUM:LOW]", "New weights, like 6:3:1.")
    ] = None,
    preview: PreviewFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Show how the levels share the sink, or change it from now on."""
    wanted = GetLevels() if weights is None else SetLevels(weights=weights)
    if weights is None and preview:
        raise BadInput("--preview shows a change; give new weights, like 5:3:2")
    if show_preview(flags.settings(), wanted, preview=preview, as_json=as_json):
        return
    found = done(flags.settings(), wanted, create=weights is not None)
    if as_json:
        print_json(plain(found))
    else:
        shares = ((level, getattr(found, level)) for level in Level)
        print_fields((level, f"{one.weight:>4}  {one.percent:g} %") for level, one in shares)
    if idle := [level for level in Level if not getattr(found, level).weight]:
        note(f"{' and '.join(idle)}, of weight 0: sent only while the others have nothing to send")


def pause(
    flags: Flags,
    task: TaskId,
    reason: Annotated[str, typer.Option(help="Kept with the task.")] = "",
    preview: PreviewFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Hold a task; its pushes wait."""
    settings, wanted = flags.settings(), PauseTask(task=task, reason=reason)
    if show_preview(settings, wanted, preview=preview, as_json=as_json):
        return
    changed = done(settings, wanted)
    if as_json:
        print_json(plain(changed))
    kept = " already" if reason and changed.reason != reason else ""
    if kept and changed.reason:
        kept += f", and its reason stays {changed.reason!r}"
    note(f"task {changed.id} is {changed.state}{kept}; go on with: pushlane resume {changed.id}")


def resume(
    flags: Flags, task: TaskId, preview: PreviewFlag = False, as_json: JsonFlag = False
) -> None:
    """Let a paused task go on."""
    settings, wanted = flags.settings(), ResumeTask(task=task)
    if show_preview(settings, wanted, preview=preview, as_json=as_json):
        return
    changed = done(settings, wanted)
    if as_json:
        print_json(plain(changed))
    not_again = "; it is not stopped again however many die" if changed.stopped else ""
    note(f"task {changed.id} is {changed.state}{not_again}")


def cancel(
    flags: Flags,
    task: TaskId,
    yes: YesFlag = False,
    preview: PreviewFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """End a task; what it has not sent is never sent. One that cannot be read is removed."""
    settings = flags.settings()
    if show_preview(settings, CancelTask(task=task), preview=preview, as_json=as_json):
        return
    try:
        view = done(settings, GetTask(task=task))
    except UnknownFormat as error:
        if not error.task_id:
            raise
        remove_unreadable(settings, [error], yes=yes)
        if as_json:
            print_json({"id": error.task_id, "removed": True})
        return
    if not (yes or view.has_ended):
        what = f"task {view.id}"
        name = f" {view.name!r}" if view.name else ""
        question = f"Cancel {what}{name}? {_unsent(view).capitalize()} will not go out."
        confirm(f"cancelling {what}", question, f"{what} is not cancelled")
    changed = done(settings, CancelTask(task=view.id))
    if as_json:
        print_json(plain(changed))
    gone = f"; {_unsent(view)} will not go out" if changed.changed else " already"
    note(f"task {view.id} is cancelled{gone}")


def promote(
    flags: Flags,
    task: TaskId,
    to: Annotated[
        str | None,
        option("high|medium|low", "The level; one up unless given.", autocompletion=complete_level),
    ] = None,
    preview: PreviewFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Move a task to another level, on a lane of its own; its backlog follows."""
    level = None if to is None else parse_level(to)
    _move(flags, PromoteTask(task=task, level=level), preview, as_json)


def demote(
    flags: Flags,
    task: TaskId,
    to: Annotated[
        str | None,
        option("medium|low", "The level; one down unless given.", autocompletion=complete_level),
    ] = None,
    preview: PreviewFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Move a task to a lower level; it keeps its lane, and its backlog follows."""
    level = None if to is None else parse_level(to)
    _move(flags, DemoteTask(task=task, level=level), preview, as_json)


def _move(flags: Flags, wanted: PromoteTask | DemoteTask, preview: bool, as_json: bool) -> None:
    settings = flags.settings()
    if show_preview(settings, wanted, preview=preview, as_json=as_json):
        return
    changed = done(settings, wanted)
    if as_json:
        print_json(plain(changed))
    note(f"task {changed.id} is {changed.level}{'' if changed.changed else ' already'}")


def _unsent(view: TaskNow) -> str:
    if view.left is None:
        return "what it has not sent yet"
    about = "about " if view.state == State.RUNNING else ""
    return f"{about}{pushes_text(view.left)}"


def forget(
    flags: Flags,
    tasks: Annotated[
        list[str], argument("TASK...", "Id, key or name of each.", autocompletion=complete_task)
    ],
    force: Annotated[bool, switch("--force", "Remove those that cannot be read, too.")] = False,
    yes: YesFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Remove tasks that have ended, with their counts, keys, lanes and dead pushes.

    One that cannot be read is removed with --force, whether it has ended or not.
    """
    settings = flags.settings()
    faults, views = on_client(settings, partial(_load, words=tasks))
    if faults and not force:
        raise next(iter(faults.values()))
    for view in views.values():  # refuse before anybody is asked
        if not view.has_ended:
            raise task_changes.not_ended(view.id, view.shown_state)
    if views and not yes:
        what = f"task {next(iter(views))}" if len(views) == 1 else f"{len(views)} tasks"
        is_keyed = any(one.key for one in views.values())
        keyed = " What has a key can then be submitted again." if is_keyed else ""
        question = f"Forget {what}, with its counts, its lane and its dead pushes?{keyed}"
        confirm(f"forgetting {what}", question, f"{what}: not forgotten")
    if faults:
        remove_unreadable(settings, list(faults.values()), yes=yes)
    if views:
        on_client(settings, partial(_forget_all, tasks=list(views)))
    if as_json:
        print_json({"forgotten": list(views), "removed": list(faults)})


async def _load(
    client: Connection, words: list[str]
) -> tuple[dict[str, UnknownFormat], dict[str, TaskNow]]:
    """Return by id why tasks cannot be read, and all others."""
    faults: dict[str, UnknownFormat] = {}
    views: dict[str, TaskNow] = {}
    for word in words:
        try:
            view = await client.do(GetTask(task=word))
        except UnknownFormat as error:
            faults[error.task_id] = error
        else:
            views[view.id] = view
    return faults, views


async def _forget_all(client: Connection, tasks: list[str]) -> None:
    for task in tasks:
        await client.do(ForgetTask(task=task))
        note(f"task {task} is forgotten")


task = Group("Look at one task: `task TASK` is `task show TASK`.", (show,), has_default=True)
