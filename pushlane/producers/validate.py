"""Refuses what cannot be meant, and what is hardly meant, and says what to give instead.

Hardly meant are pushes with nothing in them, and columns in doubled braces: the options `silent`
and `literal_braces` say that they are. A reason names columns and sinks, never what a row holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pushlane.core.errors import BadInput
from pushlane.core.names import SINK_NAME
from pushlane.core.push import Push
from pushlane.core.task import DeliveryMode
from pushlane.model.times import check_expiry, check_order, check_start, find_zone, parse_quiet
from pushlane.producers.columns import address_columns, check_names
from pushlane.producers.payloads import check_payload, payload_texts
from pushlane.producers.request import LONGEST_LABEL
from pushlane.producers.rows import BadRow
from pushlane.producers.task_options import TaskOptions
from pushlane.settings import Settings

NOTHING = "no title, body, data or payload"
_ALLOWED = "allowed only with --silent, or `silent = true` in a task spec"
_MOST_SINKS = 8
_NOW = "leave it out to start now (a task submitted with this key before keeps its start)"
_DOUBLED = re.compile(r"(?<!\{)\{\{([^{}]+)\}\}(?!\})")


def has_content(options: TaskOptions) -> bool:
    """Return whether any push of these options can have a title, body, data or payload."""
    return bool(options.title.strip() or options.body.strip() or options.data or options.payload)


def refuse_empty(options: TaskOptions, name: str, columns: Sequence[str]) -> None:
    """Raise BadInput if rows, called `name` in messages, can make nothing but empty pushes."""
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
    return bool(title.strip() or body.strip()) or any(
        value.strip() if isinstance(value, str) else value is not None
        for value in (data or {}).values()
    )


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
        for flag, names in (
            ("--title", ("title", "subject", "headline")),
            ("--body", ("body", "message", "text", "content")),
        )
    }
    ready = " ".join(f"{flag} '{{{column}}}'" for flag, column in found.items() if column)
    return ready or "--title or --body"


def _empty(lack: str) -> BadRow:
    return BadRow(f"has {lack} ({_ALLOWED})", is_empty=True)


_EMPTY = _empty(NOTHING)


def validate(options: TaskOptions, settings: Settings, now_ms: int) -> None:
    """Raise BadInput for options of which no task can be made, though each value can be."""
    _validate_label("name", options.name)
    _validate_label("key", options.key)
    _validate_label("app", options.app)
    if not options.app:
        raise BadInput("app is empty; give a name, or leave it out")
    check_names(options.attributes)
    _validate_sinks(options.sink)
    address_columns(options)
    check_payload(options)
    _validate_times(options, now_ms)
    kept_s = options.retention_s or 0
    if not settings.capabilities.retains_freely and kept_s > settings.retention_s:
        raise BadInput(
            f"retention {kept_s:g} s is longer than the {settings.retention_s:g} s for which "
            "Pulsar keeps what is acked; raise retention_s in the settings of every process"
        )
    _validate_together(options)


def _validate_label(what: str, text: str) -> None:
    """Refuse long labels and control characters, since terminals and tables show them."""
    if len(text) > LONGEST_LABEL:
        raise BadInput(f"{what} has {len(text)} characters; use at most {LONGEST_LABEL}")
    if not text.isprintable() or text != text.strip():
        raise BadInput(
            f"{what} {text[:40]!r} holds control characters, or begins or ends with a space; "
            "use plain text"
        )


def _validate_sinks(sinks: Sequence[str]) -> None:
    for name in sinks:
        if not SINK_NAME.fullmatch(name):
            shown = name.partition(":")[0][:40]  # of an URL nothing more: it may hold a token
            raise BadInput(
                f"sink {shown!r} is not a name: give up to 32 lower-case letters, digits, - and "
                "_, beginning with a letter; the settings say what the sink is"
            )
        if sinks.count(name) > 1:
            raise BadInput(f"sink {name!r} falls back on itself; name it once")
    if len(sinks) > _MOST_SINKS:
        raise BadInput(f"{len(sinks)} sinks; a task may have {_MOST_SINKS}: leave some out")


def _validate_together(options: TaskOptions) -> None:
    if options.ordered_by and options.collapse:
        raise BadInput(
            f"ordered by {options.ordered_by!r} and collapse {options.collapse!r} contradict each "
            "other: an ordered task sends every push, a collapse key only the newest; leave one out"
        )
    if options.on_unknown is not None and options.delivery != DeliveryMode.ONCE:
        raise BadInput(
            f"on_unknown {options.on_unknown} cannot be given with delivery {options.delivery}: "
            "it is only for delivery `once`; leave one of the two out"
        )


def _validate_times(options: TaskOptions, now_ms: int) -> None:
    """Refuse times that have passed or are in the wrong order, and bad hours and zones."""
    if options.quiet:
        parse_quiet(options.quiet)
    if options.zone:
        find_zone(options.zone)
    uses = (options.quiet, options.not_before_column, options.expires_column)
    if (options.zone or options.zone_column) and not any(uses):
        raise BadInput(
            "a time zone has no effect without quiet hours or a column of times; add --quiet "
            "22:00-08:00, --not-before-column or --expires-column, or leave the zone out"
        )
    start_ms, expires_at_ms = options.not_before_ms, options.expires_at_ms
    check_start(start_ms, now_ms, _NOW)
    check_expiry(expires_at_ms, now_ms)
    check_order(start_ms, expires_at_ms)
