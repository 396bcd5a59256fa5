"""The bounded labels of a push for reports alone: attributes by name, and the id of a trace.

They become columns of its receipts. A reason names what is wrong, never what a row holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pushlane.core.errors import BadInput
from pushlane.core.push import MAX_ATTRIBUTE_NAME, MAX_ATTRIBUTE_VALUE, MAX_ATTRIBUTES, MAX_TRACE_ID
from pushlane.producers.rows import BadRow
from pushlane.producers.task_options import TaskOptions
from pushlane.producers.template import text_of

Labels = tuple[dict[str, str] | None, str]
"""The attributes of a push, if any, and its trace id."""

Read = Callable[[Sequence[Any]], Labels | BadRow]


def read_labels(options: TaskOptions, names: Sequence[str]) -> Read | None:
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
    """Return the attributes that an application gave with a push, if any, and check its trace id.

    Raises:
        BadInput: not texts, too many of them, or too long.
    """
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
