"""Puts back what an answer leaves out: a field without a value is absent there, and None here."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from msgspec import inspect

_Complete = Callable[[Any], Any]


def completed(found: Any, kind: Any) -> Any:
    """Return a decoded answer with None for each field of its type that it lacks."""
    complete = _of(inspect.type_info(kind))
    return found if complete is None else complete(found)


def _of(kind: inspect.Type) -> _Complete | None:
    """Return what completes values of a type, None where there is nothing to."""
    if isinstance(kind, inspect.Metadata):
        return _of(kind.type)
    if isinstance(kind, inspect.UnionType):
        several = [one for each in kind.types if (one := _of(each)) is not None]
        return several[0] if len(several) == 1 else None
    if isinstance(kind, inspect.StructType):
        return _of_struct(kind.cls)
    if isinstance(kind, inspect.ListType | inspect.VarTupleType | inspect.CollectionType):
        return _of_each(_of(kind.item_type))
    if isinstance(kind, inspect.DictType):
        return _of_values(_of(kind.value_type))
    return None


@cache
def _of_struct(cls: Any) -> _Complete | None:
    kind = inspect.type_info(cls)
    assert isinstance(kind, inspect.StructType)
    lacking = [one.encode_name for one in kind.fields if one.required]
    within = {one.encode_name: inner for one in kind.fields if (inner := _of(one.type)) is not None}

    def complete(found: Any) -> Any:
        if not isinstance(found, dict):
            return found
        for name in lacking:
            found.setdefault(name, None)
        for name, inner in within.items():
            if found.get(name) is not None:
                found[name] = inner(found[name])
        return found

    return complete if lacking or within else None


def _of_each(inner: _Complete | None) -> _Complete | None:
    if inner is None:
        return None
    return lambda found: [inner(one) for one in found] if isinstance(found, list) else found


def _of_values(inner: _Complete | None) -> _Complete | None:
    if inner is None:
        return None
    return lambda found: (
        {name: inner(one) for name, one in found.items()} if isinstance(found, dict) else found
    )
