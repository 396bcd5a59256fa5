"""Reads from columns where a row's push goes at each sink of its task.

An address is a text, a whole number, or an object such as a Web Push subscription, which travels
as its JSON text. A reason names columns and sinks, never what a row holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from pushlane.core.errors import BadInput
from pushlane.core.names import SINK_NAME
from pushlane.lanes.suggestions import did_you_mean
from pushlane.producers.rows import BadRow, Unusable
from pushlane.producers.task_options import TaskOptions

Read = Callable[[Sequence[Any]], "dict[str, str] | None"]

_KINDS = "text, a whole number or an object"


def address_columns(options: TaskOptions) -> dict[str, str]:
    """Return the columns of addresses by sink, under an empty name for all other sinks.

    Raises:
        BadInput: a sink that is not the task's, two columns for one, or a column for none.
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
            raise BadInput(
                f"address {given!r}: {_shown(sink)} have the column {columns[sink]!r} already; "
                "give one"
            )
        columns[sink] = column
    if "" in columns and all(sink in columns for sink in options.chain):
        raise BadInput(
            f"address {columns['']!r} is for no sink, since each of the task's has its own; leave "
            "it out"
        )
    return columns


def require_sink(sink: str, chain: Sequence[str], what: str) -> None:
    """Raises BadInput when the sink that `what` is for is not one of the task's."""
    if sink not in chain:
        named = repr(sink) if SINK_NAME.fullmatch(sink) else "something"  # perhaps an address
        raise BadInput(
            f"{what} is for {named}, which is no sink of the task; its sinks are: "
            f"{', '.join(chain)}{did_you_mean(sink, chain)}"
        )


def read_addresses(options: TaskOptions, names: Sequence[str]) -> Read:
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
        found = {sink: _text(values[place], column) for sink, place, column in places}
        if not is_optional and not any(found.values()):
            raise Unusable(nowhere)
        return found

    return read


def _text(value: Any, column: str) -> str:
    text = address_text(value)
    if text is None:
        raise Unusable(_no_address([column]))
    return text


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

    Raises:
        BadInput: a sink that is not the task's, what can be no address, or none for any sink.
    """
    if address is None:
        return None
    by_sink = address if isinstance(address, Mapping) else {"": address}
    for sink in filter(None, by_sink):
        require_sink(str(sink), chain, "an address of a push")
    found = {sink: address_text(value) for sink, value in by_sink.items()}
    if None in found.values():
        raise BadInput(f"an address of a push is no {_KINDS}; give one of these by sink")
    if not any(found.get(sink, found.get("", "the recipient")) for sink in chain):
        raise BadInput("a push has no address for any sink of its task; give one, or leave it out")
    return {sink: text or "" for sink, text in found.items()}


def _no_address(columns: Iterable[str]) -> BadRow:
    return BadRow(f"has no address ({_KINDS}) in {', '.join(map(repr, dict.fromkeys(columns)))}")


def _shown(sink: str) -> str:
    return f"pushes to {sink!r}" if sink else "all other sinks"
