"""Commands on tasks that exist: look at them, change what they may send and when, forget them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Annotated

import typer

from pushlane.backends.backend import Backend
from pushlane.backends.ports import TaskQuery, pages
from pushlane.cli.errors import confirm, note
from pushlane.cli.flags import (
    Flags,
    Group,
    JsonFlag,
    WideFlag,
    YesFlag,
    argument,
    on_backend,
    option,
    switch,
)
from pushlane.cli.parsing import (
    STATES,
    complete_level,
    complete_state,
    complete_task,
    parse_level,
    parse_word,
    pushes_text,
    shown_state,
)
from pushlane.cli.processes import resting_text, slow_text, unserved_text
from pushlane.cli.render import print_fields, print_json, print_table
from pushlane.cli.task_view import COLUMNS, TaskView, task_fields, view_of, views_of, with_paces
from pushlane.core.errors import BadInput, UnknownFormat
from pushlane.core.task import ACTIVE_STATES, Level, State, Task, Weights, now_ms
from pushlane.diagnosis.causes import STORED_AS
from pushlane.model import task_changes
from pushlane.model.presence import Process
from pushlane.settings import Settings


def remove_unreadable(settings: Settings, faults: Sequence[UnknownFormat], *, yes: bool) -> None:
    """Remove these tasks that cannot be read, with all that is theirs, after a question.

    Raises:
        TaskConflict: a live process of a newer version may read them.
        UserError: the answer is no, or there is nobody to ask.
    """
    task_ids = [fault.task_id for fault in faults]
    on_backend(settings, partial(_refuse_newer, task_ids=task_ids))  # before anybody is asked
    for fault in faults:
        if not yes:
            what = f"task {fault.task_id}"
            question = (
                f"{fault.fault}.\nRemove it, with its key, its counts, its lanes and its dead "
                "pushes? What it has not sent will not go out."
            )
            confirm(f"removing {what}", question, f"{what} is not removed")
    on_backend(settings, partial(_remove_all, task_ids=task_ids))


async def _refuse_newer(backend: Backend, task_ids: Sequence[str]) -> None:
    for task_id in task_ids:
        await backend.refuse_newer(f"task {task_id}")


async def _remove_all(backend: Backend, task_ids: Sequence[str]) -> None:
    from pushlane.producers.forgetting import removed_in_time  # which loads how tasks are made

    await _refuse_newer(backend, task_ids)
    for task_id in task_ids:
        await _purge_dead(backend, task_id)
        is_gone = await removed_in_time(partial(backend.discard, task_id))
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

_ONE_DOWN = {Level.HIGH: Level.MEDIUM, Level.MEDIUM: Level.LOW, Level.LOW: Level.LOW}
_ONE_UP = {Level.LOW: Level.MEDIUM, Level.MEDIUM: Level.HIGH, Level.HIGH: Level.HIGH}


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
    words = [parse_word(word, "state", STATES) for word in state or []]
    query = TaskQuery(
        _states(words, show_all), find, app, None if level is None else parse_level(level)
    )
    limit = limit if limit is not None else 0 if as_json else _LISTED

    async def load(backend: Backend) -> tuple[list[TaskView], list[Process]]:
        processes = await backend.presence.list()
        found = await _newest(backend, query, words, limit, processes)
        return await with_paces(backend, found, processes), processes

    settings = flags.settings()
    views, processes = on_backend(settings, load)
    is_cut = bool(limit) and len(views) > limit
    views = views[-limit:] if is_cut else views
    if as_json:
        print_json([view.as_json() for view in views])
    elif views:
        print_table(COLUMNS, views, wide=wide, more="--wide shows all")
    else:
        is_chosen = state or find or app or level
        what = "no such tasks" if is_chosen else "no tasks" if show_all else "no unfinished tasks"
        note(f"{what} {settings.place}")
    if is_cut:
        note(_MORE.format(limit))
    running = [view.task for view in views if view.task.state is State.RUNNING]
    for line in (*resting_text(processes), *unserved_text(running, processes, settings)):
        note(line)


def show(flags: Flags, task: TaskId, as_json: JsonFlag = False) -> None:
    """Show all there is to know about a task."""

    async def load(backend: Backend) -> tuple[TaskView, list[Process]]:
        processes = await backend.presence.list()
        views = [await view_of(backend, task, processes)]
        return (await with_paces(backend, views, processes))[0], processes

    settings = flags.settings()
    view, processes = on_backend(settings, load)
    if as_json:
        print_json(view.as_json())
        return
    print_fields(view.as_fields())
    running = [view.task] if view.task.state is State.RUNNING else []
    for line in (
        *resting_text(processes),
        *slow_text(processes, view.task.lane),
        *unserved_text(running, processes, settings),
    ):
        note(line)


def levels(
    flags: Flags,
    weights: Annotated[
        str | None, argument("[HIGH:MEDIUM:LOW]", "New weights, like 6:3:1.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show how the levels share the sink, or change it from now on."""
    wanted = None if weights is None else Weights.parse(weights)

    async def apply(backend: Backend) -> Weights:
        if wanted is not None:
            await backend.registry.set_weights(wanted)
        return await backend.registry.weights()

    by_level = on_backend(flags.settings(), apply, create=wanted is not None).by_level()
    total = sum(by_level.values())
    shares = {
        level: {"weight": weight, "percent": round(100 * weight / total, 2)}
        for level, weight in by_level.items()
    }
    if as_json:
        print_json(shares)
    else:
        print_fields(
            (level, f"{share['weight']:>4}  {share['percent']:g} %")
            for level, share in shares.items()
        )


def pause(
    flags: Flags,
    task: TaskId,
    reason: Annotated[str, typer.Option(help="Kept with the task.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Hold a task; its pushes wait."""
    changed = on_backend(flags.settings(), lambda backend: backend.pause(task, reason))
    if as_json:
        print_json(task_fields(changed))
    note(f"task {changed.id} is {changed.state}; go on with: pushlane resume {changed.id}")


def resume(flags: Flags, task: TaskId, as_json: JsonFlag = False) -> None:
    """Let a paused task go on."""
    changed = on_backend(
        flags.settings(), lambda backend: backend.registry.change(task, task_changes.resume)
    )
    if as_json:
        print_json(task_fields(changed))
    not_again = "; it is not stopped again however many die" if changed.stopped else ""
    note(f"task {changed.id} is {shown_state(changed, now_ms())}{not_again}")


def cancel(flags: Flags, task: TaskId, yes: YesFlag = False, as_json: JsonFlag = False) -> None:
    """End a task; what it has not sent is never sent. One that cannot be read is removed."""
    settings = flags.settings()
    try:
        view = on_backend(settings, lambda backend: view_of(backend, task))
    except UnknownFormat as error:
        if not error.task_id:
            raise
        remove_unreadable(settings, [error], yes=yes)
        if as_json:
            print_json({"id": error.task_id, "removed": True})
        return
    task_changes.cancel(view.task)  # refuse before anybody is asked
    if view.task.state is State.CANCELLED:
        if as_json:
            print_json(task_fields(view.task))
        note(f"task {view.task.id} is cancelled already")
        return
    if not yes:
        what = f"task {view.task.id}"
        name = f" {view.task.name!r}" if view.task.name else ""
        question = f"Cancel {what}{name}? {_unsent(view).capitalize()} will not go out."
        confirm(f"cancelling {what}", question, f"{what} is not cancelled")
    changed = on_backend(
        settings, lambda backend: backend.registry.change(view.task.id, task_changes.cancel)
    )
    if as_json:
        print_json(task_fields(changed))
    note(f"task {view.task.id} is cancelled; {_unsent(view)} will not go out")


def promote(
    flags: Flags,
    task: TaskId,
    to: Annotated[
        str | None,
        option("high|medium|low", "The level; one up unless given.", autocompletion=complete_level),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Move a task to another level, on a lane of its own; its backlog follows."""
    _move(flags, task, to, _ONE_UP, lambda backend, level: backend.promote(task, level), as_json)


def demote(
    flags: Flags,
    task: TaskId,
    to: Annotated[
        str | None,
        option("medium|low", "The level; one down unless given.", autocompletion=complete_level),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Move a task to a lower level; it keeps its lane, and its backlog follows."""
    _move(
        flags,
        task,
        to,
        _ONE_DOWN,
        lambda backend, level: backend.registry.change(task, task_changes.demote(level)),
        as_json,
    )


def _move(
    flags: Flags,
    task: str,
    to: str | None,
    nearest: Mapping[Level, Level],
    move: Callable[[Backend, Level], Awaitable[Task]],
    as_json: bool,
) -> None:
    level = None if to is None else parse_level(to)

    async def apply(backend: Backend) -> tuple[Task, Task]:
        before = await backend.registry.get(task)
        return before, await move(backend, level or nearest[before.level])

    before, changed = on_backend(flags.settings(), apply)
    if as_json:
        print_json(task_fields(changed))
    is_same = (before.level, before.lane) == (changed.level, changed.lane)
    note(f"task {changed.id} is {changed.level}{' already' if is_same else ''}")


async def _newest(
    backend: Backend, query: TaskQuery, words: list[str], limit: int, processes: Sequence[Process]
) -> list[TaskView]:
    """Find the tasks that fit, oldest first: one more than the limit, when there are more."""
    found: list[TaskView] = []
    async for page in pages(backend.registry, query):
        views = await views_of(backend, page, processes)
        found += [view for view in views if not words or {view.state, view.status.state} & {*words}]
        if limit and len(found) > limit:
            break
    newest = found[: limit + 1] if limit else found
    return newest[::-1]


def _states(words: list[str], show_all: bool) -> tuple[State, ...]:
    if words and show_all:
        raise BadInput("--all and --state exclude each other; give one of them")
    if words:
        states = (STORED_AS.get(word) or (State(word),) for word in words)
        return tuple(dict.fromkeys(state for some in states for state in some))
    return () if show_all else ACTIVE_STATES


def _unsent(view: TaskView) -> str:
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
    faults, views = on_backend(settings, partial(_load, words=tasks))
    if faults and not force:
        raise next(iter(faults.values()))
    for view in views:  # refuse before anybody is asked
        task_changes.check_forgettable(view.task, view.status.state)
    wanted = {view.task.id: view.task for view in views}
    if wanted and not yes:
        what = f"task {next(iter(wanted))}" if len(wanted) == 1 else f"{len(wanted)} tasks"
        is_keyed = any(one.key for one in wanted.values())
        keyed = " What has a key can then be submitted again." if is_keyed else ""
        question = f"Forget {what}, with its counts, its lane and its dead pushes?{keyed}"
        confirm(f"forgetting {what}", question, f"{what}: not forgotten")
    if faults:
        remove_unreadable(settings, list(faults.values()), yes=yes)
    if wanted:
        on_backend(settings, partial(_forget_all, tasks=list(wanted.values())))
    if as_json:
        print_json({"forgotten": list(wanted), "removed": list(faults)})


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


async def _forget_all(backend: Backend, tasks: list[Task]) -> None:
    from pushlane.producers.forgetting import forget_task  # which loads how tasks are made

    for task in tasks:
        await forget_task(backend, task)
        note(f"task {task.id} is forgotten")


async def _purge_dead(backend: Backend, task_id: str) -> None:
    from pushlane.producers.dead import DeadLetters, Selection  # which loads how tasks are made

    await DeadLetters(backend).purge(Selection(task=task_id))


task = Group("Look at one task: `task TASK` is `task show TASK`.", (show,), has_default=True)
