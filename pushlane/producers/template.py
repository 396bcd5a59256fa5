"""Templates such as `Hi {name}` for the title and body of a push, compiled once a submit.

Knows plain field names only: a template never runs code, and never reaches into a value.
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from pushlane.core.errors import BadInput

Render = Callable[[Sequence[Any]], str]


class Template:
    """A parsed template: `parts` are literals, each with the field after it or None at the end.

    `fields` are the names it uses, in order of first mention. Raises BadInput for braces that do
    not match, or more in them than a field name.
    """

    def __init__(self, text: str) -> None:
        self.parts = tuple(_parse(text))
        names = (field for _, field in self.parts if field is not None)
        self.fields = tuple(dict.fromkeys(names))

    def compile(self, columns: Sequence[str]) -> Render:
        """Return a function from a row, whose values are in this order, to the text."""
        literals = "".join(
            literal.replace("%", "%%") + ("" if field is None else "%s")
            for literal, field in self.parts
        )
        places = [columns.index(field) for _, field in self.parts if field is not None]
        if not places:
            constant = literals % ()
            return lambda row: constant
        if len(places) == 1:
            place = places[0]
            return lambda row: literals % text_of(row[place])
        values_of = itemgetter(*places)
        return lambda row: literals % tuple(map(text_of, values_of(row)))


def text_of(value: Any) -> str:
    """Return a value as it reads in a push: empty for null, JSON where its spelling differs."""
    if value.__class__ is str:
        return value
    if value is None:
        return ""
    if isinstance(value, bool | dict | list):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _parse(text: str) -> Iterator[tuple[str, str | None]]:
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as error:
        raise BadInput(
            f"template {text!r} cannot be read: {error}; write {{{{ or }}}} for a brace itself"
        ) from error
    for literal, field, spec, conversion in parts:
        is_plain = field is None or (field.strip() and not any(sign in field for sign in ".[]{"))
        if not is_plain or spec or conversion:
            raise BadInput(
                f"template {text!r}: what stands in braces after {literal[-20:]!r} is not a plain "
                "field name such as {name}; attributes, indexes, conversions and format specs are "
                "not supported"
            )
        yield literal, field
