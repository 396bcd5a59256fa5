"""Tells the command of `pushlane` that does an operation.

A parameter is an argument where it is part of the address or has to be given, and else an option of
its own name; the tables below have all that is otherwise. An operation that no command does with
the parameters that it has is told none: a command that does less, or more, would be wrong.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from pushlane.operations.operation import Operation

Way = Callable[[Any], Iterable[str]]
"""Returns the words by which a command is given a value."""


def command_of(operation: Operation[Any]) -> str:
    """Return the command that does this, quoted for a shell; empty where there is none.

    Of a list it shows as many as the command does.
    """
    kind = type(operation)
    if not kind.commands or kind.word() in _WITHOUT:
        return ""
    ways = _WAYS.get(kind.word(), {})
    arguments: list[str] = []
    options = [*_FLAGS.get(kind.word(), ())]
    for field in msgspec.structs.fields(kind):
        value = getattr(operation, field.name)
        is_needed = field.name in kind.in_path() or field.required
        is_told = is_needed or value != field.default or (kind.word(), field.name) in _ALWAYS
        if not is_told or _is_of_paging(kind, field.name):
            continue
        way = ways.get(field.name)
        if way is None and field.name in ways:
            return ""
        if way is not None:
            options += way(value)
        elif is_needed:
            arguments += _texts(value)
        else:
            options += _option(field.name.replace("_", "-"))(value)
    if any(one.startswith("-") for one in arguments):
        options, arguments = [], [*options, "--", *arguments]
    return shlex.join(["pushlane", *kind.commands[0].split(), *arguments, *options])


def _is_of_paging(kind: type[Operation[Any]], name: str) -> bool:
    return kind.has_pages() and name in ("limit", "cursor")


def _texts(value: Any) -> list[str]:
    several = value if isinstance(value, tuple) else (value,)
    return ["none" if one is None else str(one) for one in several]


def _option(name: str) -> Way:
    """Return the way of an option, which is repeated for several values, and bare for True."""

    def way(value: Any) -> Iterable[str]:
        if isinstance(value, bool):
            return [f"--{name}"] if value else []
        return [word for one in _texts(value) for word in (f"--{name}", one)]

    return way


def _joined(name: str) -> Way:
    """Return the way of an option that has several values with commas between."""
    return lambda values: (f"--{name}", ",".join(map(str, values)))


def _by_name(name: str) -> Way:
    """Return the way of an option that has values by name, like `low=2,all=5`."""

    def way(values: Any) -> Iterable[str]:
        some = None if values is None else [f"{key}={one}" for key, one in values.items()]
        return (f"--{name}", "none" if some is None else ",".join(some))

    return way


def _rate(name: str) -> Way:
    """Return the way of an option for a rate, which may be a number a second."""

    def way(value: Any) -> Iterable[str]:
        is_number = isinstance(value, int | float)
        return (f"--{name}", f"{value:.15g}/s" if is_number else "none" if value is None else value)

    return way


def _span(name: str) -> Way:
    """Return the way of an option for a duration in seconds."""
    return lambda value: (f"--{name}", f"{round(value)}s")


def _time(name: str, none: str = "") -> Way:
    """Return the way of an option for a time in Unix ms, of which 0 is told by the word `none`."""

    def way(value: Any) -> Iterable[str]:
        if not value and none:
            return (f"--{name}", none)
        at = datetime.fromtimestamp(value / 1000, UTC)
        return (f"--{name}", at.isoformat(timespec="milliseconds").replace("+00:00", "Z"))

    return way


_ARGUMENTS: Way = _texts
_SAID: Way = lambda value: ()  # noqa: E731 - by the command itself
_FILE_ALONE = {"record-events", "register-addresses", "suppress", "unsuppress", "put-rule"}
_WITHOUT = _FILE_ALONE | {"get-unreadable", "remove-unreadable", "hash-recipients"}
"""Operations that are a part of what a command does, or that it is given by a file."""

_ALWAYS = {("list-dead-addresses", "since_ms")}
"""Parameters without which a command takes another value than the operation."""

_FLAGS: Mapping[str, tuple[str, ...]] = {
    "clear-limit": ("--none",),
    "clear-app-quota": ("--none",),
    "count-dead": ("--dry-run",),
    "list-ends": ("--csv",),
    "list-reported": ("--rows",),
    "run-rule": ("--no-wait",),
}
"""The words that an operation adds to a command that several operations share."""

_DEAD: Mapping[str, Way | None] = {
    "older_than_s": _span("older-than"),
    "newer_than_s": _span("newer-than"),
    "pushes": _ARGUMENTS,
    "all_there_are": _option("all"),
}
_REPORT: Mapping[str, Way | None] = {
    "task": _ARGUMENTS,
    "since_ms": _time("since"),
    "until_ms": _time("until"),
    "rows_alone": _SAID,
}
_OF_APP: Mapping[str, Way | None] = {"app": _option("app"), "quota": _ARGUMENTS}
_WAYS: Mapping[str, Mapping[str, Way | None]] = {
    "accept-sink": {"target": None},
    "clear-app-quota": _OF_APP,
    "count-dead": _DEAD,
    "create-token": {
        "grants": _option("role"),
        "apps": _joined("app"),
        "levels": _joined("level"),
        "sinks": _joined("sink"),
        "most_per_s": _option("most-rate"),
        "requests_per_s": _option("requests"),
        "lasts_s": _span("lasts"),
    },
    "demote-task": {"level": _option("to")},
    "get-app-quota": _OF_APP,
    "get-report": _REPORT,
    "list-dead": _DEAD,
    "list-dead-addresses": {
        "since_ms": _time("since"),
        "newest_first": _SAID,
        "sealed": _SAID,
        "after": None,
    },
    "list-ends": {"hashes": _SAID},
    "list-receipts": {"task": _ARGUMENTS, "seq": None, "trace_id": _option("trace")},
    "list-reported": _REPORT,
    "list-rule-runs": {"name": _ARGUMENTS},
    "list-tasks": {
        "state": lambda states: ("--all",) if "any" in states else [*_option("state")(states)]
    },
    "promote-task": {"level": _option("to")},
    "purge-dead": _DEAD,
    "put-alert": {
        "metric": _option("metric"),
        "when": _option("when"),
        "to": _option("to"),
        "window_s": _span("window"),
        "for_s": _span("for"),
        "remind_s": _span("remind"),
    },
    "put-stream": {
        "level": _option("level"),
        "sinks": _joined("sink"),
        "expires_after_s": _span("expires-after"),
        "rate_per_s": _option("rate"),
    },
    "trace-pushes": {"since_ms": _time("since")},
    "withdraw-rule-runs": {"at_ms": _time("at")},
    "replay-task": {"since_ms": _time("since")},
    "reschedule-task": {
        "not_before_ms": _time("not-before", "now"),
        "expires_at_ms": _time("expires", "none"),
        "quiet": lambda hours: ("--quiet", hours or "none"),
    },
    "retry-dead": _DEAD,
    "rotate-token": {"keep_s": _span("keep")},
    "run-rule": {"at_ms": _time("at")},
    "set-app-quota": _OF_APP,
    "set-formats": {"min_format": _option("min")},
    "set-limit": {
        "rate_per_s": _rate("rate"),
        "recipient_a_day": _by_name("recipient-a-day"),
        "quota": None,
        "high_part": None,
    },
    "set-mode": {"read_only": lambda is_on: ("on" if is_on else "off",)},
}
"""How commands take values; None for what a command does not take."""
