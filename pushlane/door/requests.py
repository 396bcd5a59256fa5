"""Makes operations of requests: of the path, the query and the body, each field once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.datastructures import ImmutableMultiDict, QueryParams

from pushlane.core.errors import BadInput
from pushlane.core.push import UNREADABLE
from pushlane.operations.operation import ETag, Operation

MOST_BYTES = 1024 * 1024
"""The longest body of an operation; streams of pushes have no end."""

MOST_A_PAGE = 1_000
"""A list that goes on with a cursor has no more in an answer, whatever is asked for."""

_TAG = re.compile(r'(?:W/)?"[^"]*"')
_TAGS = re.compile(rf"{_TAG.pattern}(?:\s*,\s*{_TAG.pattern})*")
_FIELD = re.compile(r" - at `\$\.?(.*)`$")


def operation_of(
    kind: type[Operation[Any]],
    path: Mapping[str, str],
    query: QueryParams,
    body: bytes,
) -> Operation[Any]:
    """Return the operation that a request asks for.

    Raises BadInput, which names the field, for what cannot be one of its fields or is none.
    """
    if kind.method == "GET":
        if body:
            raise BadInput("a GET takes no body; give its fields in the query")
        given: dict[str, Any] = _of_query(kind, query)
    else:
        if query:
            raise BadInput(f"{kind.method} takes no query; give its fields in the body, as JSON")
        given = _of_body(body)
    if twice := given.keys() & path.keys():
        raise BadInput(f"{', '.join(sorted(twice))} is given in the path; leave it out elsewhere")
    try:
        made: Operation[Any] = msgspec.convert({**given, **path}, kind, strict=kind.method != "GET")
    except msgspec.ValidationError as error:
        raise BadInput(_told(kind, error)) from error
    return _in_pages(made)


def operation_of_form(
    kind: type[Operation[Any]], fields: ImmutableMultiDict[str, str]
) -> Operation[Any]:
    """Return the operation that a form asks for: a field that was left empty is not given.

    Several values may be one text with commas between. Raises BadInput, as `operation_of` does.
    """
    filled = [(name, text) for name, text in fields.multi_items() if text.strip()]
    try:
        given = _of_query(kind, ImmutableMultiDict(filled))
        for name in given.keys() & _several(kind):
            given[name] = _split(name, given[name])
        made: Operation[Any] = msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadInput(_told(kind, error)) from error
    return _in_pages(made)


def _split(name: str, texts: Sequence[str]) -> list[str]:
    """Return the values in texts with commas. Raises BadInput for none: that may mean all."""
    found = [one.strip() for text in texts for one in text.split(",") if one.strip()]
    if not found:
        raise BadInput(f"{name} has only commas; leave it empty, or give values between them")
    return found


def _in_pages(asked: Operation[Any]) -> Operation[Any]:
    """Return the question with an end to its answer, where that goes on with a cursor."""
    if not asked.has_pages():
        return asked
    limit: int = asked.limit  # type: ignore[attr-defined]
    return msgspec.structs.replace(asked, limit=min(limit or MOST_A_PAGE, MOST_A_PAGE))


def tags_of(kind: type[Operation[Any]], given: Sequence[str]) -> frozenset[str] | None:
    """Return the tags in the headers If-Match of a request, None for any state of the value.

    They are empty where it has to name some. Raises BadInput for what are none, and where the
    operation minds none.
    """
    if not given:
        return frozenset() if kind.etag is ETag.NEEDED else None
    text = ",".join(given).strip()
    if text == "*":
        return None
    if not kind.etag.is_taken:
        raise BadInput(f"{kind.word()} does not use If-Match: leave it out")
    if not _TAGS.fullmatch(text):
        raise BadInput(
            'If-Match must be the ETag of an answer, in its quotes, like "5d1f0c7a9b3e2846", or *'
        )
    return frozenset(_TAG.findall(text))


def _of_query(kind: type[Operation[Any]], query: ImmutableMultiDict[str, str]) -> dict[str, Any]:
    """Return the fields in a query: one that may be several is given several times."""
    several = _several(kind)
    given: dict[str, Any] = {}
    for name in dict.fromkeys(query):
        values = query.getlist(name)
        if name in several:
            given[name] = values
        elif len(values) > 1:
            raise BadInput(f"{name} is given {len(values)} times; give it once")
        else:
            given[name] = values[0]
    return given


def _several(kind: type[Operation[Any]]) -> set[str]:
    """Return the fields of an operation that have several values."""
    return {
        field.name
        for field in msgspec.structs.fields(kind)
        if str(field.type).startswith(("tuple", "typing.Annotated[tuple"))
    }


def _of_body(body: bytes) -> dict[str, Any]:
    if not body:
        return {}
    try:
        found = msgspec.json.decode(body)
    except UNREADABLE as error:
        raise BadInput(f"the body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadInput("the body is not a JSON object; give the fields by name")
    return found


def _told(kind: type[Operation[Any]], error: msgspec.ValidationError) -> str:
    """Say which field is wrong, and which there are, without the value: it may be somebody's."""
    text = str(error)
    match = _FIELD.search(text)
    what = text[: match.start()] if match else text
    where = f"{match[1]}: " if match and match[1] else ""
    names = ", ".join(kind.__struct_fields__) or "none"
    return f"{where}{what[:1].lower()}{what[1:]}; {kind.word()} has the fields {names}"
