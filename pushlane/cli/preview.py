"""`--preview` of commands that steer, and `apply`, which does what was looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
import typer

from pushlane.cli.doing import done
from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, JsonFlag, argument, switch
from pushlane.cli.render import plain as printable
from pushlane.cli.render import print_json, print_table
from pushlane.core.task import now_ms
from pushlane.operations.counting import COUNTED
from pushlane.operations.operation import Operation
from pushlane.operations.preview_texts import end_columns, told_lines
from pushlane.operations.previewing import SHOWN, Apply, Preview, PreviewView
from pushlane.operations.views import plain
from pushlane.settings import Settings

PreviewFlag = Annotated[
    bool, switch("--preview", "Say what it would do to all ends, and change nothing.")
]
CountFlag = Annotated[
    bool, switch("--preview", "Say how many it would change, and change nothing.")
]

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
    if view.ends:
        print_table(end_columns(now_ms()), view.ends)
    for line in _counts(view) if view.operation in _COUNTED else told_lines(view):
        typer.echo(line)
    note(f"nothing is changed; to do it, within ten minutes: pushlane apply {view.token}")


def _counts(view: PreviewView) -> Iterator[str]:
    """Yield what a change that moves no end would change."""
    for one in view.counts:
        yield printable(one.told)
    if len(view.counts) == SHOWN or view.is_cut:
        yield "there are more than are counted here"
    if not view.counts:
        yield "it would change nothing"
