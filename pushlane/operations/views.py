"""How the views of operations are written: `--json` and HTTP have the same document.

A field without a value is absent, not null. What is null in somebody's own data stays so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


def plain(view: Any) -> Any:
    """Return a view as dicts, lists, texts and numbers, without its fields that are None."""
    return _without_none(view, msgspec.to_builtins(view))


def _without_none(view: Any, built: Any) -> Any:
    if isinstance(view, msgspec.Struct):
        names = zip(view.__struct_fields__, view.__struct_encode_fields__, strict=True)
        return {
            name: _without_none(getattr(view, field), built[name])
            for field, name in names
            if built.get(name) is not None
        }
    if isinstance(view, Mapping):
        pairs = zip(view.values(), built.items(), strict=True)
        return {name: _without_none(one, value) for one, (name, value) in pairs}
    if isinstance(view, list | tuple):
        return [_without_none(one, value) for one, value in zip(view, built, strict=True)]
    return built


class Removed(msgspec.Struct, frozen=True):
    """The name of what is there no more."""

    name: str
    removed: bool = True
