"""Commands on a spool that a submit or a producer left behind: look into it, send what is in it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, Group, JsonFlag, argument, switch
from pushlane.cli.parsing import pushes_text
from pushlane.cli.render import Column, picked, print_json, print_table
from pushlane.producers.outbox import sender
from pushlane.producers.outbox.sender import Spooled, SpoolSent

_COLUMNS: tuple[Column[Spooled], ...] = (
    Column("TASK", lambda one: one.task.id),
    Column("NAME", lambda one: one.task.name, elastic=True),
    Column("LEVEL", lambda one: one.task.level),
    Column("WAITING", lambda one: f"{one.waiting:,}", number=True),
    Column("BYTES", lambda one: f"{one.bytes:,}", number=True),
    Column("CLOSED", lambda one: "yes" if one.is_sealed else "no"),
)

Folder = Annotated[Path, argument("DIR", "The folder of the spool.")]
SealFlag = Annotated[
    bool, switch("--seal", "Close the tasks: no more pushes come, so they can finish.")
]


def show(flags: Flags, folder: Folder, as_json: JsonFlag = False) -> None:
    """Show the tasks in a spool, and how many pushes of each are not sent yet."""
    found = sender.look(folder)
    if as_json:
        print_json([_as_json(one) for one in found])
    else:
        print_table(_COLUMNS, found)


def send(flags: Flags, folder: Folder, seal: SealFlag = False, as_json: JsonFlag = False) -> None:
    """Send what a submit or a producer has left in a spool; print the tasks."""
    sent = asyncio.run(sender.send(flags.settings(), folder, seal=seal, tell=note))
    for one in sent:
        note(_remark(one))
    if as_json:
        fields = ("sent", "lost", "is_sealed", "ended", "refused")
        print_json([{"task": one.task.id, **picked(one, *fields)} for one in sent])
    else:
        for one in sent:
            typer.echo(one.task.id)
    if any(one.refused for one in sent):
        raise typer.Exit(1)


def _as_json(one: Spooled) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(one)
    return {**fields, "task": one.task.id, "name": one.task.name, "level": one.task.level}


def _remark(one: SpoolSent) -> str:
    if one.ended or one.refused:
        return one.ended or f"error: {one.refused}"
    then = "closed" if one.is_sealed else "left open for more pushes (--seal closes it)"
    lost = f", {pushes_text(one.lost)} lost in corrupt files" if one.lost else ""
    return f"task {one.task.id}: {pushes_text(one.sent)} sent{lost}; {then}"


spool = Group("Send pushes that a submit or a producer kept on disk (a spool).", (show, send))
