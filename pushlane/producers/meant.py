"""Refuses what is hardly meant: pushes with nothing in them, and columns in doubled braces.

The options `silent` and `literal_braces` say that it is meant. A reason names columns and sinks,
never what a row holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pushlane.core.errors import BadInput
from pushlane.core.push import Push
from pushlane.producers.payloads import payload_texts
from pushlane.producers.rows import BadRow
from pushlane.producers.task_options import TaskOptions

NOTHING = "no title, body, data or payload"
_ALLOWED = "allowed only with --silent, or `silent = true` in a task spec"
_DOUBLED = re.compile(r"(?<!\{)\{\{([^{}]+)\}\}(?!\})")
_TITLES = ("title", "subject", "headline")
_BODIES = ("body", "message", "text", "content")


def has_content(options: TaskOptions) -> bool:
    """Return whether any push of these options can have a title, body, data or payload."""
    return bool(options.title.strip() or options.body.strip() or options.data or options.payload)


def refuse_empty(options: TaskOptions, name: str, columns: Sequence[str]) -> None:
    """Refuse rows, called `name` in messages, that can make nothing but empty pushes.

    Raises:
        BadInput: as above; says which options take the columns that look like texts.
    """
    if not options.silent and not has_content(options):
        raise BadInput(
            f"{name}: its pushes would have {NOTHING}; give {_texts_of(columns)}, or --silent if "
            "that is meant"
        )


def unmeant(options: TaskOptions, name: str, columns: Sequence[str]) -> Iterator[str]:
    """Yield what would be refused of these options if they did not allow it."""
    strict = replace(options, silent=False, literal_braces=False)
    checks = partial(refuse_empty, strict, name, columns), partial(refuse_doubled, strict, columns)
    for check in checks:
        try:
            check()
        except BadInput as error:
            yield str(error)


def nothing_in(push: Push, chain: Sequence[str]) -> BadRow | None:
    """Return why a push has nothing to show or to read at one of the sinks that it may go to.

    Data of which each value is null or a blank text counts as none.
    """
    if has_own_content(push.title, push.body, push.data):
        return None
    if push.payloads is None:
        return _EMPTY
    lacking = (sink for sink in chain if push.address(sink) and not push.payload(sink))
    sink = next(lacking, None)
    if sink is None:
        return None
    if not any(push.payloads.values()):
        return _EMPTY
    return _empty(f"no title, body or data, nor a payload for the sink {sink!r}")


def has_own_content(title: str, body: str, data: Mapping[str, Any] | None) -> bool:
    """Return whether a push has a title, a body or data, which are for all sinks."""
    return bool(title.strip() or body.strip()) or any(map(_is_something, (data or {}).values()))


def refuse_doubled(options: TaskOptions, columns: Sequence[str]) -> None:
    """Refuse a template that has the name of a column in doubled braces, which is sent as text.

    Raises:
        BadInput: quotes what is written; says what to write for the column, and for the text.
    """
    if options.literal_braces:
        return
    for where, text in _templates(options):
        for doubled in _DOUBLED.finditer(text):
            if (name := doubled[1].strip()) in columns:
                raise BadInput(
                    f"{where}: `{doubled[0]}` would be sent as the text {doubled[0][1:-1]}; for "
                    f"the column write {{{name}}}; for the text give --literal-braces "
                    "(`literal_braces = true` in a task spec)"
                )


def _templates(options: TaskOptions) -> Iterator[tuple[str, str]]:
    for name in ("title", "body", "collapse"):
        yield f"{name} template", str(getattr(options, name))
    for sink, text in payload_texts(options):
        yield f"payload of {sink}", text


def _texts_of(columns: Sequence[str]) -> str:
    """Return the options that would take columns named like texts, else the names of options."""
    known = {column.lower(): column for column in reversed(columns)}
    found = {
        flag: next((known[name] for name in names if name in known), "")
        for flag, names in (("--title", _TITLES), ("--body", _BODIES))
    }
    ready = " ".join(f"{flag} '{{{column}}}'" for flag, column in found.items() if column)
    return ready or "--title or --body"


def _is_something(value: Any) -> bool:
    return bool(value.strip()) if isinstance(value, str) else value is not None


def _empty(lack: str) -> BadRow:
    return BadRow(f"has {lack} ({_ALLOWED})", is_empty=True)


_EMPTY = _empty(NOTHING)
