"""The search for tasks that the table of tasks stands for, once it is filtered or sorted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pushlane.operations.finding import FindTasks, FoundPage
from pushlane.operations.now import SHOWN
from pushlane.operations.tasks import ANY_STATE
from pushlane.top.tables import Order

_FIELDS = ("app", "level", "sink", "state")
_MOST_FIRST = "-rate"


def search(
    text: str, order: Order[Any] | None, *, is_reversed: bool, with_finished: bool
) -> FindTasks:
    """Return the search that a text stands for: words, and `app=`, `level=`, `sink=`, `state=`.

    Raises BadInput for a field that cannot be so.
    """
    fields: dict[str, Any] = {"state": ANY_STATE} if with_finished else {}
    words = []
    for word in text.split():
        name, is_field, value = word.partition("=")
        if not (is_field and name in _FIELDS):
            words.append(word)
        elif value:  # and not in the middle of it
            fields[name] = value.split(",") if name == "state" else value
    sort = _MOST_FIRST
    if order:
        is_descending = order.largest_first != is_reversed
        sort = f"{'-' if is_descending else ''}{order.word or order.name}"
    return FindTasks.made(find=" ".join(words), sort=sort, limit=SHOWN, **fields)


def found_parts(found: FoundPage | None, text: str, *, with_finished: bool) -> Iterator[str]:
    """Yield what is said of a search: how many tasks fit, and how to find more."""
    if found is None:
        yield "looking..."
        return
    count = found.in_all
    tasks = f"{f'{count:,}' if count else 'no'} {'' if with_finished else 'unfinished '}task"
    tasks += "s" if count > 1 else ""
    if text:
        tasks += f" {'fit' if count > 1 else 'fits'} {text!r}"
    yield tasks + (", finished ones too" if with_finished and count else "")
    if count > len(found.tasks):
        yield f"the first {len(found.tasks)} are shown"
    elif not (count or with_finished):
        yield "a finds finished ones too"
