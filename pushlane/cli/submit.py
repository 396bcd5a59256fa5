"""`submit` makes a task of a file's rows, and prints its id."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from pushlane.backends.backend import connect
from pushlane.cli.errors import INTERRUPTED, note
from pushlane.cli.flags import Flags, JsonFlag, add_commands, on_backend
from pushlane.cli.parsing import pushes_text, rows_text
from pushlane.cli.progress import SubmitBar
from pushlane.cli.render import print_json, time_text
from pushlane.cli.task_options import TaskFlags
from pushlane.cli.task_view import already_text, task_fields
from pushlane.core.errors import Unreachable
from pushlane.core.task import Task, now_ms
from pushlane.producers.offline_submit import submit_offline
from pushlane.producers.request import SubmitRequest, SubmitResult
from pushlane.producers.submit import submit as submit_rows
from pushlane.settings import Settings

if TYPE_CHECKING:
    from pushlane.cli.dry_run import Tried

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="CSV, JSON Lines or Parquet; - for stdin.")
]
Format = Annotated[
    str | None, typer.Option("--format", metavar="csv|jsonl|parquet", help="Format of FILE.")
]
Rejects = Annotated[
    Path | None, typer.Option(metavar="PATH", help="Where skipped rows are listed.")
]
SpoolDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="If a service does not answer, keep it all in this folder, for `pushlane spool send`.",
    ),
]


def register(app: typer.Typer) -> None:
    add_commands(app, submit)


def submit(
    flags: Flags,
    file: File,
    options: TaskFlags,
    format_: Format = None,
    rejects: Rejects = None,
    spool: SpoolDir = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Submit nothing: check the rows, show samples, and say when it would end.",
        ),
    ] = False,
    reveal: Annotated[
        bool, typer.Option("--reveal", help="With --dry-run: show recipients unmasked.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Put a file of pushes on the lanes, and print the task's id.

    Run again with the same --key, it goes on where it stopped, or does nothing more.
    """
    if reveal and not dry_run:
        raise typer.BadParameter("--reveal shows the recipients of a dry run; add --dry-run")
    request = SubmitRequest(source=file, format=format_, rejects=rejects, **options.read(now_ms()))
    if dry_run:
        _try(flags.settings(), request, reveal=reveal, as_json=as_json)
        return
    result = _run(flags.settings(), request, spool)
    _remark(result, spool)
    if as_json:
        task = task_fields(result.task)
        print_json({"task_id": result.task.id, **asdict(result), "task": task})
    else:
        typer.echo(result.task.id)


def _run(settings: Settings, request: SubmitRequest, spool: Path | None) -> SubmitResult:
    with SubmitBar() as bar:
        try:
            if spool and _is_away(settings):
                return asyncio.run(submit_offline(settings, request, spool, bar))
            return on_backend(
                settings,
                lambda backend: submit_rows(backend, settings, request, bar),
                create=True,
            )
        except KeyboardInterrupt:
            stopped = bar.task_id
    note(_way_on(request.key, stopped))
    raise typer.Exit(INTERRUPTED)


def _try(settings: Settings, request: SubmitRequest, *, reveal: bool, as_json: bool) -> None:
    from pushlane.cli.dry_run import print_tried, try_submit

    async def look(looked_at: Settings) -> Tried:
        async with connect(looked_at) as backend:
            return await try_submit(backend, settings, request, bar)

    with _store_to_try(settings) as looked_at, SubmitBar() as bar:
        tried = asyncio.run(look(looked_at))
    print_tried(tried, request, reveal=reveal, as_json=as_json)


@contextmanager
def _store_to_try(settings: Settings) -> Iterator[Settings]:
    """Give these settings; where they have no store, those of an empty one that goes at the end."""
    if not settings.is_store_missing:
        yield settings
        return
    note(f"there is no store {settings.place} yet; without --dry-run it is made")
    with TemporaryDirectory(prefix="pushlane-dry-run-") as folder:
        yield settings.but(data_dir=Path(folder))


def _is_away(settings: Settings) -> bool:
    """Return whether a service does not answer."""
    try:
        on_backend(settings, lambda backend: backend.registry.weights(), create=True)
    except Unreachable as error:
        note(f"keeping it in the spool: {error}")
        return True
    return False


def _way_on(key: str, task_id: str) -> str:
    if not task_id:
        return "interrupted; nothing was submitted"
    if key:
        return (
            f"interrupted; task {task_id} is not complete. "
            f"The same command, with --key {key}, goes on where it stopped"
        )
    return (
        f"interrupted; task {task_id} is not complete and goes on sending what it has. Without "
        f"a --key it cannot be continued: pushlane cancel {task_id}, and submit again with a --key"
    )


def _start(task: Task) -> str:
    return f", to start at {time_text(task.not_before_ms)}" if task.not_before_ms else ""


def _remark(result: SubmitResult, spool: Path | None) -> None:
    task = result.task
    if result.spooled:
        waits = "waits in the spool already" if result.resumed else "waits in the spool"
        note(f"{pushes_text(result.spooled)}: it {waits}; to send it: pushlane spool send {spool}")
    elif result.already_done:
        note(f"{already_text(task, result.progress)}: nothing submitted now")
    elif result.resumed:
        note(f"went on with an earlier submit: {result.published:,} of {task.total:,} sent now")
    else:
        note(f"{pushes_text(result.published)} on the lane, level {task.level}{_start(task)}")
        note(f"next: pushlane why {task.id}")
    if result.rejected:
        note(f"{rows_text(result.rejected, 'bad row')} left out; see {result.rejects}")
