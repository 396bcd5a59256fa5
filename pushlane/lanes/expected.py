"""Says in words of ours which values a setting may have, and what was given instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "true or false"),
    (int, "a whole number"),
    (float, "a number"),
    (str, "a text"),
    (Mapping, "a table"),
    ((list, tuple), "a list"),
)


def kind_of(value: Any) -> str:
    """Return what a value is, without the value: it may be a secret."""
    return next((word for kind, word in _KINDS if isinstance(value, kind)), "a date or time")


def expected(kind: Any) -> str:
    """Describe in words which values fit a type of ours."""
    from msgspec import inspect  # loads much that only this needs

    found = inspect.type_info(kind)
    choices = found.types if isinstance(found, inspect.UnionType) else (found,)
    return " or ".join(_one(one) for one in choices if not isinstance(one, inspect.NoneType))


def _one(found: Any) -> str:
    from msgspec import inspect

    match found:
        case inspect.IntType(ge=least, le=most):
            return f"a whole number {_range('from', least, most)}".rstrip()
        case inspect.FloatType(gt=None, ge=least, le=most):
            return f"a number {_range('from', least, most)}".rstrip()
        case inspect.FloatType(gt=least, le=most):
            return f"a number {_range('over', least, most)}".rstrip()
        case inspect.LiteralType(values=(word,)):
            return f"`{word}`"
        case inspect.LiteralType(values=words):
            return f"one of {', '.join(map(str, words))}"
        case inspect.EnumType(cls=enum):
            return f"one of {', '.join(str(word.value) for word in enum)}"
        case inspect.BoolType():
            return "true or false"
        case inspect.DictType():
            return "a table of names and texts"
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            is_number = isinstance(item, inspect.IntType)
            return "a list of whole numbers" if is_number else "a list of texts"
    return "a text"


def unfit(name: str, value: Any, kind: Any) -> str:
    """Say that an option has a value that does not fit its type, without the value."""
    is_, fits = kind_of(value), expected(kind)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if fits.startswith("one of") and isinstance(value, str):
        return f"{name} is none of the words there are; give {fits}"
    is_out_of_range = fits.startswith(is_) or (is_number and fits.startswith("a number"))
    return f"{name} is {'out of range' if is_out_of_range else is_}; give {fits}"


def _range(word: str, least: float | None, most: float | None) -> str:
    start = "" if least is None else f"{word} {_figure(least)}"
    return start if most is None else f"{start} to {_figure(most)}"


def _figure(number: float) -> str:
    """Return a number in full: 2,419,200, not 2.4192e+06."""
    return f"{int(number):,}" if number == int(number) else f"{number:g}"
