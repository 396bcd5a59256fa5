"""`--preview` of commands that steer, and `apply`, which does what was looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer

from pushlane.cli.doing import done
from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, JsonFlag, argument, switch
from pushlane.cli.render import Column, print_json, print_table, soon_text
from pushlane.cli.render import plain as printable
from pushlane.core.task import now_ms
from pushlane.operations.counting import COUNTED
from pushlane.operations.operation import Operation
from pushlane.operations.previewing import SHOWN, Apply, EndView, Preview, PreviewView
from pushlane.operations.views import plain
from pushlane.settings import Settings

PreviewFlag = Annotated[
    bool, switch("--preview", "Say what it would do to all ends, and change nothing.")
]
CountFlag = Annotated[
    bool, switch("--preview", "Say how many it would change, and change nothing.")
]

_NEVER = "-"
_COUNTED = frozenset(kind.word() for kind in COUNTED)


def show_preview(
    settings: Settings, wanted: Operation[Any], *, preview: bool, as_json: bool
) -> bool:
    """Show what an operation would do, if that is asked for; tell whether it was."""
    if preview:
        parameters = msgspec.to_builtins(wanted)
        view = done(settings, Preview(operation=wanted.word(), parameters=parameters))
        if as_json:
            print_json(plain(view))
        else:
            _print(view)
    return preview


def apply(
    flags: Flags,
    token: Annotated[str, argument("TOKEN", "That of a preview, within ten minutes.")],
    as_json: JsonFlag = False,
) -> None:
    """Do a change just as `--preview` showed it.

    Refused when it would do otherwise now: when somebody has changed the same, another task would
    miss its expiry, one would end much later than was shown, or many more would be changed.
    """
    applied = done(flags.settings(), Apply(token=token))
    if as_json:
        print_json(plain(applied))
    note(f"{applied.operation} is done, as it was previewed")


def _print(view: PreviewView) -> None:
    at_ms = now_ms()
    columns: tuple[Column[EndView], ...] = (
        Column("TASK", lambda one: one.task),
        Column("NAME", lambda one: one.name or "-", elastic=True),
        Column("LEVEL", lambda one: one.level),
        Column("ENDS NOW", lambda one: _end_text(one.before_ms, at_ms), number=True),
        Column("ENDS THEN", lambda one: _end_text(one.after_ms, at_ms), number=True),
        Column("EXPIRY", lambda one: one.expiry or ""),
    )
    if view.ends:
        print_table(columns, view.ends)
    for line in _counts(view) if view.operation in _COUNTED else _lines(view):
        typer.echo(line)
    note(f"nothing is changed; to do it, within ten minutes: pushlane apply {view.token}")


def _end_text(end_ms: int | None, at_ms: int) -> str:
    return _NEVER if end_ms is None else soon_text(max(0.0, (end_ms - at_ms) / 1000))


def _counts(view: PreviewView) -> Iterator[str]:
    """Yield what a change that moves no end would change."""
    for one in view.counts:
        yield printable(one.told)
    if len(view.counts) == SHOWN or view.is_cut:
        yield "there are more than are counted here"
    if not view.counts:
        yield "it would change nothing"


def _lines(view: PreviewView) -> Iterator[str]:
    """Yield what the table does not show."""
    for one in view.counts:
        yield printable(one.told)
    for part in view.parts:
        whose = f"app {part.app} at {part.level}" if part.app else part.level
        yield f"{whose}: {part.before:.1%} of sink {part.sink} now, {part.after:.1%} then"
    counts = {"later": view.later, "sooner": view.sooner}
    moved = " and ".join(f"{count:,} {word}" for word, count in counts.items() if count)
    yield f"tasks that end otherwise: {moved or 'none'}"
    if view.missed or view.kept:
        yield f"expiries: {view.missed:,} missed by it, {view.kept:,} kept by it"
    if view.others is not None and (view.others.later or view.others.sooner):
        yield f"of other apps: {view.others.later:,} later, {view.others.sooner:,} sooner"
    if view.untold:
        whose = "1 task" if view.untold == 1 else f"{view.untold:,} tasks"
        yield (
            f"the end of {whose} cannot be told: the total is open, pushes wait for their time, "
            "quiet hours begin first, or nothing is known of the sink"
        )
    if view.resting:
        yield f"{', '.join(view.resting)} rests: ends are told as if it did not"
