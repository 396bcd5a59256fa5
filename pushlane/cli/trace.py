"""`trace` tells the story of a push, or of all of a trace or to a recipient, step by step."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated

import typer

from pushlane.cli.doing import done
from pushlane.cli.errors import note
from pushlane.cli.flags import Flags, JsonFlag, argument, option, switch
from pushlane.cli.main import give_way
from pushlane.cli.push import known_fields, outcome_text, tell_unkept, tell_unread
from pushlane.cli.render import plain as printable
from pushlane.cli.render import print_fields, print_json
from pushlane.core.task import now_ms
from pushlane.model.times import parse_since
from pushlane.operations.steps import StepView, clock_text, step_text
from pushlane.operations.tracing import TracedPush, TracePushes, TraceView
from pushlane.operations.views import plain
from pushlane.operations.waits import took_text

_AT = 23  # of a time in UTC with its ms
_TOOK = 8
_LEFT = _AT + _TOOK + 4
_NARROW = 60


def trace(
    flags: Flags,
    word: Annotated[
        str,
        argument(
            "PUSH|TRACE|RECIPIENT", "A push (TASK-SEQ), a trace id, or a recipient; - reads a line."
        ),
    ],
    reveal: Annotated[
        bool, switch("--reveal", "Of one push show recipient and content, if its lane has them.")
    ] = False,
    since: Annotated[
        str | None,
        option("7d|TIME", "Of a trace or a recipient: receipts since then; all unless given."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Tell the story of a push: each wait, each attempt with its answer, what the device said.

    For example: `pushlane trace sale-17`. A trace or a recipient shows its newest 20 pushes.
    The store of reports is read if there is one, and the log of receipts. Recipients are masked.
    """
    give_way()
    if word == "-":
        word = sys.stdin.readline().strip()
    since_ms = parse_since(since, now_ms()) if since else None
    asked = TracePushes.made(what=word, reveal=reveal, since_ms=since_ms)
    found = done(flags.settings(), asked)
    if as_json:
        print_json(plain(found))
    else:
        _print(found)
    if reveal and found.pushes:
        tell_unkept(found.pushes[0])
    _tell(found)


def _print(found: TraceView) -> None:
    for place, push in enumerate(found.pushes):
        if place:
            typer.echo("")
        print_fields(_fields(push))
        if push.steps:
            typer.echo("")
            typer.echo(f"{'AT (UTC)':<{_AT}}  {'TOOK':>{_TOOK}}  WHAT")
        for step in push.steps:
            for line in _lines(step):
                typer.echo(line)


def _fields(push: TracedPush) -> Iterator[tuple[str, str]]:
    yield "push", push.push
    state = push.task_state or "not in the registry any more"
    yield "task", f"{push.task_id} {push.name} ({state})".replace("  ", " ")
    yield "outcome", outcome_text(push)
    yield from known_fields(push)


def _lines(step: StepView) -> list[str]:
    """Return a step as a line, and what has no room in that as lines below."""
    at = "" if step.at_ms is None else _at_text(step.at_ms)
    took = "" if step.took_ms is None else took_text(step.took_ms)
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10 * _NARROW
    what = textwrap.wrap(printable(_what(step)), max(width, _NARROW) - _LEFT)
    head, *more = what
    return [f"{at:<{_AT}}  {took:>{_TOOK}}  {head}", *(f"{'':<{_LEFT}}{line}" for line in more)]


def _at_text(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S.%f}"[:_AT]


def _what(step: StepView) -> str:
    told, clocks = step_text(step), clock_text(step)
    return f"{told} ({clocks})" if clocks else told


def _tell(found: TraceView) -> None:
    """Say what was read, and what is left out or may be missing."""
    note(f"read from {found.source}")
    if found.more:
        at_least = "at least " if found.is_cut else ""
        note(f"these are the newest {len(found.pushes)}; there are {at_least}{found.more:,} more")
    elif found.is_cut:
        note("there are more receipts than are read at once: you see the last")
    tell_unread(found)
