"""Renders what a task's payload file has for each of its sinks, row by row.

A payload is a JSON object with a block for each sink, under its name or under `*` for all others.
Texts in it are templates as title and body are; a text that is just one `{field}` stands for the
field's value itself. A reason names sinks and fields, never what a row holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from pushlane.core.errors import BadInput
from pushlane.producers.columns import require_sink
from pushlane.producers.rows import BadRow, Unusable
from pushlane.producers.task_options import TaskOptions
from pushlane.producers.template import Template

OTHERS = "*"
"""The name of the block for all sinks that have none."""

Read = Callable[[Sequence[Any]], "dict[str, Any] | None"]
_Render = Callable[[Sequence[Any]], Any]


def check_payload(options: TaskOptions) -> None:
    """Raise BadInput for a payload, or a template in it, that cannot be one of these options."""
    if options.payload is None:
        return
    blocks = _blocks(options.payload, options.chain)
    payload_fields(options)
    for sink, block in blocks.items():
        if not isinstance(block, Mapping) and _only_field(block) is None:
            raise BadInput(
                f"the payload's block {sink or OTHERS!r} is neither a JSON object nor one "
                "{field} that holds one"
            )


def payload_fields(options: TaskOptions) -> dict[str, tuple[str, ...]]:
    """Return the fields that each block uses, in order. Raises BadInput for a bad template."""
    fields: dict[str, dict[str, None]] = {}
    for sink, text in payload_texts(options):
        try:
            fields.setdefault(sink, {}).update(dict.fromkeys(Template(text).fields))
        except BadInput as error:
            raise BadInput(f"payload of {sink}: {error}") from error
    return {sink: tuple(names) for sink, names in fields.items()}


def payload_texts(options: TaskOptions) -> Iterator[tuple[str, str]]:
    """Yield the texts of a payload, which are templates, each with its block's name."""
    blocks = options.payload if isinstance(options.payload, Mapping) else {}
    return ((str(sink), text) for sink, block in blocks.items() for text in _texts(block))


def read_payloads(options: TaskOptions, names: Sequence[str]) -> Read:
    """Return a function from a row's values, in the order of `names`, to its payloads by sink.

    It gives None for tasks without a payload, and raises Unusable for a row that makes no object.
    """
    if options.payload is None:
        return lambda values: None
    blocks = _blocks(options.payload, options.chain)
    made = [(sink, _block(sink, block, names)) for sink, block in blocks.items()]
    return lambda values: {sink: render(values) for sink, render in made}


def given_payloads(payload: Any, chain: Sequence[str]) -> dict[str, Any] | None:
    """Return the payloads given with a push, by sink. Raises BadInput when one is no mapping."""
    if payload is None:
        return None
    blocks = _blocks(payload, chain)
    if not all(isinstance(block, Mapping) for block in blocks.values()):
        raise BadInput(f"the payload of a push is not a mapping for each sink, or for {OTHERS!r}")
    return blocks


def _blocks(payload: Any, chain: Sequence[str]) -> dict[str, Any]:
    """Return the blocks by sink, under an empty name for all others."""
    if not isinstance(payload, Mapping):
        raise BadInput(
            f"a payload is a {type(payload).__name__}, not a mapping with a block for each sink; "
            "give that, or where rows are submitted its file as a Path"
        )
    if not payload:
        raise BadInput(
            f"a payload has a block for each sink, or for {OTHERS!r}, which stands for all others; "
            f"this one has none. The sinks of the task are: {', '.join(chain)}"
        )
    for sink in payload:
        if sink != OTHERS:
            require_sink(str(sink), chain, "a block of the payload")
    return {"" if sink == OTHERS else sink: block for sink, block in payload.items()}


def _block(sink: str, block: Any, names: Sequence[str]) -> _Render:
    render = _compiled(block, names)
    if isinstance(block, Mapping):
        return render
    no_object = BadRow(f"does not make a JSON object of the payload's block {sink or OTHERS!r}")

    def read(values: Sequence[Any]) -> Any:
        found = render(values)
        try:
            found = msgspec.json.decode(found) if isinstance(found, str) else found
        except (msgspec.DecodeError, RecursionError) as error:
            raise Unusable(no_object) from error
        if not isinstance(found, dict):
            raise Unusable(no_object)
        return found

    return read


def _compiled(value: Any, names: Sequence[str]) -> _Render:
    """Return a function from a row to the value with its templates rendered."""
    if isinstance(value, str):
        field = _only_field(value)
        if field is None:
            return Template(value).compile(names)
        place = names.index(field)
        return lambda row: _plain(row[place])
    if isinstance(value, Mapping):
        members = [(str(name), _compiled(each, names)) for name, each in value.items()]
        return lambda row: {name: render(row) for name, render in members}
    if isinstance(value, list | tuple):
        items = [_compiled(each, names) for each in value]
        return lambda row: [render(row) for render in items]
    return lambda row: value


def _plain(value: Any) -> Any:
    """Return a row's value as JSON has it. Raises ValueError or TypeError when it has none."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError
        return value
    return msgspec.json.decode(msgspec.json.encode(value))


def _only_field(text: Any) -> str | None:
    """Return the field of a text that is one `{field}` and no more."""
    parts = Template(text).parts if isinstance(text, str) else ()
    return parts[0][1] if len(parts) == 1 and not parts[0][0] else None


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
