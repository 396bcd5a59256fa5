"""The page that says what a change would do, before it counts: also a part of others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from pushlane.console.naming import the_task
from pushlane.console.pages import Ask, Page, elsewhere
from pushlane.console.steering import NO_LIMIT, change_text
from pushlane.core.errors import PushlaneError
from pushlane.operations.operation import Operation
from pushlane.operations.previewing import PREVIEWED, Preview
from pushlane.operations.shares import SetLimit
from pushlane.operations.tasks import CancelTask
from pushlane.util.errors import Unauthorized

_KINDS = {kind.word(): kind for kind in PREVIEWED}
_FIELDS = tuple(sorted({name for kind in PREVIEWED for name in kind.__struct_fields__}))


async def _values(ask: Ask) -> Mapping[str, Any]:
    word = ask.query.get("operation", "")
    fields = {name: ask.query[name] for name in _FIELDS if ask.query.get(name)}
    kind = _KINDS.get(word)
    task = await the_task(ask, fields.get("task", ""))
    name = (task.name or task.id) if task else fields.get("task", "")
    view, error, done = None, "", None
    try:
        view = await ask.quietly(Preview(operation=word, parameters=_converted(kind, fields)))
        done = None if kind is None else elsewhere(msgspec.convert(view.parameters, kind))
    except Unauthorized:
        raise
    except PushlaneError as problem:  # of a value between two others, mostly
        error = str(problem)
    return {
        "title": change_text(word, fields, name),
        "view": view,
        "error": error,
        "task": task,
        "may": kind is not None and ask.may(kind),
        "destroys": kind is CancelTask,
        "return_to": ask.query.get("back", "") or "tasks",
        "anew": f"preview?{urlencode(ask.query)}",
        "how": done,
    }


def _converted(kind: type[Operation[Any]] | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields as the operation has them; as they are where they cannot be."""
    if kind is None:
        return {**fields}
    if kind is SetLimit:
        fields = {name: None if text == NO_LIMIT else text for name, text in fields.items()}
    elif re.fullmatch(r"[0-9]{1,9}", fields.get("quota", "")):
        fields = {**fields, "quota": int(fields["quota"])}  # of a text it would be one
    try:
        made = msgspec.convert({**fields}, kind, strict=False)
    except msgspec.ValidationError:
        return {**fields}  # which the preview refuses, and says why
    return {name: msgspec.to_builtins(getattr(made, name)) for name in fields}


PREVIEW = Page(
    "/preview",
    "Preview",
    "preview.html",
    Preview,
    _values,
    query=("operation", "back", *_FIELDS),
    is_live=False,
)
