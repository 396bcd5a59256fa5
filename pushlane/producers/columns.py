"""Reads from columns of a row where its push goes, when it may go, and its labels.

A reason names columns and sinks, never what a row holds, but for what looks like a zone. An address
is a text, a whole number, or an object such as a Web Push subscription, which travels as its JSON
text. Times are read from the row alone, never from the time of the submit, so that a repeat makes
the same pushes. Labels, attributes by name and the id of a trace, are for receipts and reports.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import msgspec

from pushlane.core.errors import BadInput
from pushlane.core.names import SINK_NAME
from pushlane.model.times import FIRST_MS, LAST_MS, UTC, find_zone, known_zone
from pushlane.producers.rows import BadRow, Unusable
from pushlane.producers.task_options import TaskOptions
from pushlane.producers.template import text_of
from pushlane.util.texts import did_you_mean, nearest

MAX_ATTRIBUTES = 16
MAX_ATTRIBUTE_NAME = 64
MAX_ATTRIBUTE_VALUE = 256
MAX_TRACE_ID = 128
_KINDS = "text, a whole number or an object"


def address_columns(options: TaskOptions) -> dict[str, str]:
    """Return the columns of addresses by sink, under an empty name for all other sinks.

    Raises BadInput for a sink that is not the task's, two columns for one, or a column for none.
    """
    columns: dict[str, str] = {}
    for given in options.address:
        before, equals, after = given.partition("=")
        sink, column = (before, after) if equals else ("", before)
        if not column:
            raise BadInput(f"address {given!r} names no column; write COLUMN or SINK=COLUMN")
        if sink:
            require_sink(sink, options.chain, f"address {given!r}")
        if sink in columns:
            who = f"pushes to {sink!r}" if sink else "all other sinks"
            raise BadInput(
                f"address {given!r}: {who} have the column {columns[sink]!r} already; give one"
            )
        columns[sink] = column
    if "" in columns and all(sink in columns for sink in options.chain):
        raise BadInput(
            f"address {columns['']!r} is not used, since each sink of the task has its own; "
            "leave it out"
        )
    return columns


def require_sink(sink: str, chain: Sequence[str], what: str) -> None:
    """Raises BadInput when the sink that `what` is for is not one of the task's."""
    if sink not in chain:
        named = repr(sink) if SINK_NAME.fullmatch(sink) else "something"  # perhaps an address
        raise BadInput(
            f"{what} is for {named}, which is not a sink of the task; its sinks are: "
            f"{', '.join(chain)}{did_you_mean(sink, chain)}"
        )


def read_addresses(
    options: TaskOptions, names: Sequence[str]
) -> Callable[[Sequence[Any]], dict[str, str] | None]:
    """Return a function from a row's values, in the order of `names`, to its addresses by sink.

    It gives None for tasks without addresses, and raises Unusable for a row that has none.
    """
    columns = address_columns(options)
    if not columns:
        return lambda values: None
    places = [(sink, names.index(column), column) for sink, column in columns.items()]
    is_optional = "" not in columns and any(sink not in columns for sink in options.chain)
    nowhere = _no_address(columns.values())

    def read(values: Sequence[Any]) -> dict[str, str]:
        found: dict[str, str] = {}
        for sink, place, column in places:
            if (address := address_text(values[place])) is None:
                raise Unusable(_no_address([column]))
            found[sink] = address
        if not is_optional and not any(found.values()):
            raise Unusable(nowhere)
        return found

    return read


def address_text(value: Any) -> str | None:
    """Return an address as it travels, empty for no value; None for what can be no address."""
    if isinstance(value, str):
        return value.strip()
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return msgspec.json.encode(value).decode() if value else ""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_whole else None


def given_addresses(address: Any, chain: Sequence[str]) -> dict[str, str] | None:
    """Return the addresses that an application gave with a push: a text, or texts by sink.

    Raises BadInput for a sink that is not the task's, what can be no address, or none for any sink.
    """
    if address is None:
        return None
    by_sink = address if isinstance(address, Mapping) else {"": address}
    for sink in filter(None, by_sink):
        require_sink(str(sink), chain, "an address of a push")
    found = {sink: address_text(value) for sink, value in by_sink.items()}
    if None in found.values():
        raise BadInput(f"an address of a push is not a {_KINDS}; give one of these by sink")
    if not any(found.get(sink, found.get("", "the recipient")) for sink in chain):
        raise BadInput("a push has no address for any sink of its task; give one, or leave it out")
    return {sink: text or "" for sink, text in found.items()}


def _no_address(columns: Iterable[str]) -> BadRow:
    return BadRow(f"has no address ({_KINDS}) in {', '.join(map(repr, dict.fromkeys(columns)))}")


_SECONDS = re.compile(r"\d+(\.\d+)?")
_LIKE_A_ZONE = re.compile(r"[A-Za-z_]{2,20}(/[A-Za-z_+-]{2,20}){1,2}")
_MOST_HINTS = 100  # looking for the nearest zone takes milliseconds


RowTimes = tuple[int, int, str]
"""When a push may go and when it expires (Unix milliseconds, 0 for now and never), and its zone."""

ReadTimes = Callable[[Sequence[Any]], RowTimes | BadRow]


def read_times(options: TaskOptions, names: Sequence[str]) -> ReadTimes | None:
    """Return a function from a row's values, in the order of `names`, to its times, if any."""
    columns = time_columns(options)
    if not columns:
        return None
    at = {column: names.index(column) for column in columns.values()}
    zone_of = _zone_reader(options.zone_column, options.zone)

    def read(values: Sequence[Any]) -> RowTimes | BadRow:
        def value(column: str) -> Any:
            return values[at[column]] if column else None

        zone = zone_of(value(options.zone_column))
        if isinstance(zone, BadRow):
            return zone
        times = []
        for column in (options.not_before_column, options.expires_column):
            at_ms = moment_ms(value(column), zone)
            if at_ms is None:
                return BadRow(
                    f"has no time in {column!r}: it takes an ISO time like 2030-01-31T18:00+01:00 "
                    "or Unix seconds, from 2001 to 3000"
                )
            times.append(at_ms)
        start_ms, expires_at_ms = times
        if expires_at_ms and expires_at_ms <= start_ms:
            return BadRow("expires before it may start")
        return start_ms, expires_at_ms, zone.key if value(options.zone_column) else ""

    return read


def time_columns(options: TaskOptions) -> dict[str, str]:
    """Return the columns that times are read from, by what they hold."""
    columns = {
        "start": options.not_before_column,
        "expiry": options.expires_column,
        "time zone": options.zone_column,
    }
    return {role: column for role, column in columns.items() if column}


def moment_ms(value: Any, zone: ZoneInfo) -> int | None:
    """Return a time as Unix milliseconds, 0 for no value, None when it cannot be read.

    ISO text, Unix seconds, or what Parquet holds. Without a zone of its own it is in `zone`.
    """
    if isinstance(value, str):
        value = value.strip()
    if value is None or value == "":
        return 0
    try:
        at_ms = int(_seconds(value, zone) * 1000)
    except (TypeError, ValueError, OverflowError, OSError):
        return None
    return at_ms if FIRST_MS <= at_ms <= LAST_MS else None


def _seconds(value: Any, zone: ZoneInfo) -> float:
    if isinstance(value, str):
        value = Decimal(value) if _SECONDS.fullmatch(value) else datetime.fromisoformat(value)
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=zone)
        return moment.timestamp()
    if isinstance(value, date):
        return datetime.combine(value, time(), zone).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise TypeError
    return float(value)


def _zone_reader(column: str, default: str) -> Callable[[Any], ZoneInfo | BadRow]:
    """Return a function from what a row holds as its zone to the zone."""
    otherwise = find_zone(default) if default else UTC
    known: dict[str, ZoneInfo] = {}
    hints = 0

    def zone_of(value: Any) -> ZoneInfo | BadRow:
        nonlocal hints
        name = value.strip() if isinstance(value, str) else value
        if name is None or name == "":
            return otherwise
        if not isinstance(name, str):
            return _no_zone(column, "", with_hint=False)
        zone = known.get(name) or known_zone(name)
        if zone is None:
            hints += 1
            return _no_zone(column, name, with_hint=hints <= _MOST_HINTS)
        known[name] = zone
        return zone

    return zone_of


def _no_zone(column: str, name: str, *, with_hint: bool) -> BadRow:
    if not _LIKE_A_ZONE.fullmatch(name):
        return BadRow(f"has no IANA time zone like Europe/Berlin in {column!r}")
    near = nearest(name, available_timezones()) if with_hint else None
    hint = f" (nearest: {near})" if near else ""
    return BadRow(f"has the unknown time zone {name!r} in {column!r}{hint}")


Labels = tuple[dict[str, str] | None, str]
"""The attributes of a push, if any, and its trace id."""

ReadLabels = Callable[[Sequence[Any]], Labels | BadRow]


def read_labels(options: TaskOptions, names: Sequence[str]) -> ReadLabels | None:
    """Return a function from a row's values, in the order of `names`, to its labels, if any."""
    if not options.attributes and not options.trace_id:
        return None
    places = [(name, names.index(name)) for name in dict.fromkeys(options.attributes)]
    trace_at = names.index(options.trace_id) if options.trace_id else None

    def read(values: Sequence[Any]) -> Labels | BadRow:
        attributes = {name: text_of(values[place]).strip() for name, place in places}
        trace_id = "" if trace_at is None else text_of(values[trace_at]).strip()
        wrong = _wrong(attributes, trace_id)
        if wrong:
            return BadRow(f"has {wrong}")
        return {name: text for name, text in attributes.items() if text} or None, trace_id

    return read


def checked(attributes: Mapping[str, str] | None, trace_id: str) -> dict[str, str] | None:
    """Return the attributes given with a push, if any. Raises BadInput for bad ones or trace id."""
    if attributes is None and trace_id == "":  # as most have none
        return None
    if not isinstance(attributes, Mapping | None) or not isinstance(trace_id, str):
        raise BadInput("the attributes of a push map texts to texts, and its trace_id is a text")
    found = dict(attributes or {})
    if not all(isinstance(text, str) for pair in found.items() for text in pair):
        raise BadInput("the attributes of a push map texts to texts; make texts of their values")
    check_names(tuple(found))
    if wrong := _wrong(found, trace_id):
        raise BadInput(f"a push has {wrong}")
    return found or None


def check_names(names: Sequence[str]) -> None:
    """Raises BadInput when a push cannot have attributes of these names."""
    if len(names) > MAX_ATTRIBUTES:
        raise BadInput(f"{len(names)} attributes; a push may have {MAX_ATTRIBUTES}: leave some out")
    for name in names:
        if not 0 < len(name) <= MAX_ATTRIBUTE_NAME:
            raise BadInput(
                f"the attribute {name[:MAX_ATTRIBUTE_NAME]!r} has a name of {len(name)} "
                f"characters; use 1 to {MAX_ATTRIBUTE_NAME}"
            )


def _wrong(attributes: Mapping[str, str], trace_id: str) -> str:
    """Describe what of these cannot travel, if anything. A trace id may become a header's value."""
    for name, text in attributes.items():
        if len(text) > MAX_ATTRIBUTE_VALUE:
            return f"an attribute {name!r} of over {MAX_ATTRIBUTE_VALUE} characters"
    if len(trace_id) > MAX_TRACE_ID or not (trace_id.isascii() and trace_id.isprintable()):
        return f"a trace id that is not 1 to {MAX_TRACE_ID} plain ASCII characters"
    return ""
