"""Previews of what moves no end: how many it would change, and of whom.

Counted is what the change itself would choose now, bounded by what the caller may see. What a
preview shows and its token holds has no recipient: the token has their keyed hashes, which are all
that is kept of what is suppressed.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from pushlane.operations.dead import PurgeDead, RetryDead
from pushlane.operations.operation import Operation
from pushlane.operations.recipients import (
    ClearSuppressions,
    Suppress,
    Unsuppress,
    scope_seen,
    scope_word,
)
from pushlane.operations.session import Session
from pushlane.producers.dead import NO_TASK, DeadLetters, DeadRetry, push_of

if TYPE_CHECKING:
    from pushlane.producers.suppress import HashedValues

COUNTED: tuple[type[Operation[Any]], ...] = (
    *(RetryDead, PurgeDead),
    *(Suppress, Unsuppress, ClearSuppressions),
)
"""What is previewed with counts alone."""

MOST_COUNTED = 100_000
"""So many dead pushes are counted; of more it is told that there are more."""

_AT_ONCE = 1_000
LEAVES = "leaves"


class CountView(msgspec.Struct, frozen=True):
    """How many a change `does` something to, like `retries`, and `of` whom: `task/ID`, `app/shop`.

    What it `leaves` is counted too. `told` says it in words.
    """

    does: str
    of: str
    count: int
    told: str


@dataclass(frozen=True)
class Counted:
    """What a change would do, the most first, and the hashes of the values that it is about.

    `is_cut` tells that there are more than were counted.
    """

    counts: Sequence[CountView]
    hashes: bytes = b""
    is_cut: bool = False

    @property
    def changed(self) -> Mapping[str, int]:
        """How many are changed, by whose they are."""
        return {one.of: one.count for one in self.counts if one.does != LEAVES and one.count}


class _Hashed:
    """A change of values of which only the hashes are known."""

    hashes: tuple[int, ...]

    async def hashed(self, at: Session) -> HashedValues:
        from pushlane.producers.suppress import HashedValues

        return HashedValues(self.hashes, 0)


class _SuppressHashed(_Hashed, Suppress, frozen=True, kw_only=True):
    hashes: tuple[int, ...]

    @classmethod
    def word(cls) -> str:
        return Suppress.word()


class _UnsuppressHashed(_Hashed, Unsuppress, frozen=True, kw_only=True):
    hashes: tuple[int, ...]

    @classmethod
    def word(cls) -> str:
        return Unsuppress.word()


_PERSONAL = ("values", "hashes")


def shown_parameters(operation: Operation[Any]) -> dict[str, Any]:
    """Return the parameters of a change without those that say whom it is about."""
    found: dict[str, Any] = msgspec.to_builtins(operation)
    return {name: value for name, value in found.items() if name not in _PERSONAL}


def same_again(
    kind: type[Operation[Any]], parameters: Mapping[str, Any], hashes: bytes
) -> Operation[Any]:
    """Return the change that was previewed, by what `shown_parameters` and `Counted` have."""
    if not issubclass(kind, Suppress | Unsuppress):
        same: Operation[Any] = msgspec.convert(dict(parameters), kind)
        return same
    found = _SuppressHashed if issubclass(kind, Suppress) else _UnsuppressHashed
    return found(values=(), hashes=(*array("q", hashes),), **parameters)


async def count(at: Session, operation: Operation[Any]) -> Counted:
    """Count what a change would do. Raises as it does."""
    if isinstance(operation, RetryDead | PurgeDead):
        return await _dead(at, operation)
    if isinstance(operation, Suppress | Unsuppress):
        return await _values(at, operation)
    assert isinstance(operation, ClearSuppressions)
    scope = scope_seen(at, operation.app, operation.sink)
    size = (await at.backend.suppressions.counts()).get(scope, 0)
    where = scope_word(scope)
    told = f"removes {_n(size, 'suppression')} ({where})"
    return Counted([CountView("removes", where, size, told)])


async def _dead(at: Session, operation: RetryDead | PurgeDead) -> Counted:
    selection = await operation.bounded(at)
    letters = DeadLetters(at.backend)
    retry = (
        DeadRetry(at.backend, at.settings, letters) if isinstance(operation, RetryDead) else None
    )
    found: Counter[tuple[str, str]] = Counter()
    after, left = "", min(selection.most, MOST_COUNTED)
    while left and (
        some := await letters.page(replace(selection, limit=min(left, _AT_ONCE)), after)
    ):
        for one in some:
            push = push_of(one.dead) if retry and one.dead.task_id else ""
            found[one.dead.task_id or NO_TASK, push if isinstance(push, str) else ""] += 1
        after, left = some[-1].place, left - len(some)
    tasks = {task for task, _ in found}
    refused = {task: await retry.problem_of(task) for task in tasks} if retry else {}
    does = "retries" if retry else "purges"
    counts = [
        _dead_view(does, task, number, refused.get(task) or problem)
        for (task, problem), number in found.most_common()
    ]
    return Counted(counts, is_cut=not left and selection.most > MOST_COUNTED)


def _dead_view(does: str, task: str, number: int, problem: str) -> CountView:
    what = _n(number, "dead message") + " that is not a push"
    if task != NO_TASK:
        what = f"{_n(number, 'dead push', 'dead pushes')} of task {task}"
    elif number > 1:
        what = f"{number:,} dead messages that are not pushes"
    if problem:
        return CountView(LEAVES, f"task/{task}", number, f"leaves {what}: {problem}")
    return CountView(does, f"task/{task}", number, f"{does} {what}")


async def _values(at: Session, operation: Suppress | Unsuppress) -> Counted:
    scope = scope_seen(at, operation.app, operation.sink)
    values = await operation.hashed(at)
    hits = (await at.backend.suppressions.find({scope: values.hashes})).get(scope, ())
    there = len({*hits})
    adds = isinstance(operation, Suppress)
    given = len(values.hashes)
    changed = given - there if adds else there
    return Counted(
        [*_value_views(scope_word(scope), changed, given - changed, values.left_out, adds=adds)],
        array("q", values.hashes).tobytes(),
    )


def _value_views(
    where: str, changed: int, same: int, left_out: int, *, adds: bool
) -> Iterator[CountView]:
    what = "address" if where.startswith("sink/") else "recipient"
    many = "addresses" if what == "address" else "recipients"
    no_longer = "" if adds else " no longer"
    told = f"suppresses {_n(changed, what, many)}{no_longer} ({where})"
    yield CountView("suppresses" if adds else "suppresses no longer", where, changed, told)
    if same:
        are = "is" if same == 1 else "are"
        already = "suppressed already" if adds else "not suppressed there"
        told = f"leaves {_n(same, what, many)}, which {are} {already}"
        yield CountView(LEAVES, where, same, told)
    if left_out:
        told = f"leaves {_n(left_out, 'value')} out, as no push can have such"
        yield CountView(LEAVES, where, left_out, told)


def _n(number: int, one: str, many: str = "") -> str:
    return f"1 {one}" if number == 1 else f"{number:,} {many or one + 's'}"
