"""A submit as it is typed into a form: its columns and its request, read as the CLI reads its own.

What is typed has the names of the options of `pushlane submit`. No path is among it: a form is sent
from elsewhere, and this is another machine's disk.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pushlane.core.errors import BadInput
from pushlane.core.task import Level
from pushlane.model.limits import parse_rate
from pushlane.producers.encoder import columns_used, likely_recipient, shown_columns
from pushlane.producers.request import SubmitRequest, row_file
from pushlane.producers.rows import open_source
from pushlane.producers.task_options import (
    TaskOptions,
    read_options,
    read_payload,
    written_options,
)

Typed = Mapping[str, Sequence[str]]
"""The typed texts by the name of their option, without those that were left empty."""

_WRITTEN = written_options()
LISTED = ("data", "address", "attribute")
"""The options of which there may be several."""

SWITCHES = ("silent", "literal_braces")
OF_FILE = ("format", "delimiter", "encoding")
"""The options on the text format of a file."""

MOST_COLUMNS = 200
"""So many columns of a file are listed."""

_LONGEST_COLUMN = 200

MOST_REJECTS = 100
"""So many rows that cannot be used are listed: a list of all could be far larger than the file."""

OF_START = ("rate", "in_flight", "paused", "test_to")
"""The options on the start of a submit: its limits, its size, and its test recipients."""

NAMES = (*OF_FILE, *OF_START, *_WRITTEN)
"""The names of all that can be typed."""


class StoredRows(NamedTuple):
    """A file of rows at a path, what it was called where it came from, and where bad rows go."""

    path: Path
    called: str
    rejects: Path


class Columns(NamedTuple):
    """The first columns of a file. If they are not `fixed`, its rows may have others.

    `recipient` is the one that most likely has the recipients; empty where nothing tells. `told` is
    empty but where the names look like data, and are not to be shown. The names are cut where they
    are long, and `more` are not among them; `can_choose` says that there is no such name.
    """

    names: tuple[str, ...]
    fixed: bool
    recipient: str
    told: str = ""
    more: int = 0
    can_choose: bool = False


NO_COLUMNS = Columns((), False, "")


def columns_of(rows: StoredRows, typed: Typed) -> Columns:
    """Return the columns of a file. Raises BadInput for a wrong file; says what to do.

    It reads from the disk, and may take a second: it is for a thread.
    """
    request = SubmitRequest(
        level=Level.LOW, source=rows.path, called=rows.called, **_of_file(typed)
    )
    source = open_source(*row_file(request, rows.path))
    told = shown_columns(source)
    if told.startswith("(not shown"):
        return Columns((), source.fixed, "", told)
    first = source.columns[:MOST_COLUMNS]
    names = tuple(name[:_LONGEST_COLUMN] for name in first)
    more = len(source.columns) - len(names)
    return Columns(
        names,
        source.fixed,
        likely_recipient("recipient", names) or "",
        more=more,
        can_choose=source.fixed and not more and names == first,
    )


def request_of(rows: StoredRows, typed: Typed, now_ms: int) -> SubmitRequest:
    """Return the submit that was typed. Raises BadInput for what cannot be."""
    if "level" not in typed:
        raise BadInput("the level is missing; give high, medium or low")
    written = {name: default for name, (_, default) in _WRITTEN.items()}
    written |= {name: _value(name, some) for name, some in typed.items() if name in _WRITTEN}
    return SubmitRequest(
        source=rows.path,
        called=rows.called,
        rejects=rows.rejects,
        most_rejects=MOST_REJECTS,
        **_of_file(typed),
        **_of_start(typed),
        **read_options(written, now_ms),
    )


def uses_of(options: TaskOptions) -> dict[str, list[str]]:
    """Return by column what it is used as. Raises BadInput for a broken template."""
    found: dict[str, list[str]] = {}
    for role, columns in columns_used(options).items():
        for column in columns:
            found.setdefault(column, []).append(role)
    return found


def command_of(called: str, typed: Typed, *more: str) -> str:
    """Return the command that does the same with a file of this name."""
    words = ["pushlane", "submit", called]
    for name in NAMES:
        option = f"--{name.replace('_', '-')}"
        for one in typed.get(name, ()):
            if name == "payload":
                words += [option, "payload.json"]
            else:
                words += [option] if name in (*SWITCHES, "paused") else [option, one]
    return shlex.join([*words, *more])


def _value(name: str, some: Sequence[str]) -> Any:
    """Return an option as `read_options` takes it."""
    if name in SWITCHES:
        return True
    if name in LISTED:
        return tuple(some)
    if name == "payload":
        return read_payload(some[0], "the payload")
    return some[0].strip()


def _of_file(typed: Typed) -> dict[str, Any]:
    return {name: typed[name][0] for name in OF_FILE if name in typed}


def _of_start(typed: Typed) -> dict[str, Any]:
    given: dict[str, Any] = {"paused": "paused" in typed}
    if "rate" in typed:
        given["rate_per_s"] = _rate(typed["rate"][0])
    if "in_flight" in typed:
        given["in_flight"] = typed["in_flight"][0].strip()
    if "test_to" in typed:
        text = typed["test_to"][0].strip()
        given["test_to"] = (text,) if text.startswith("{") else tuple(text.split(","))
    return given


def _rate(text: str) -> float:
    try:
        return parse_rate(text)
    except ValueError as error:
        raise BadInput(f"rate {text[:40]!r} is {error}") from None
