"""Limits: what a task, an app, a sink or a host may take, changeable at runtime.

Each is a small document under its subject, like `app/shop`, that every dispatcher follows. A limit
that is not set is none. A cost is what the sink's settings say that one push costs, 1 unless given.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from pushlane.lanes.errors import BadInput, TaskConflict, UnknownFormat
from pushlane.lanes.ports import DocumentStore
from pushlane.lanes.suggestions import did_you_mean
from pushlane.lanes.task import Level

KINDS = ("task", "app", "sink", "host")
EVERY_APP = "*"
"""As the name of an app: every app that has no such limit of its own."""

ALL_LEVELS = "all"
"""In `recipient_a_day`: all levels together."""

_AMOUNTS = ("rate_per_s", "total_cost", "cost_a_day")
_COUNTS = ("in_flight", "total", "a_day")
_KIND = "limit"
_TRIES = 10


class Subject(NamedTuple):
    """Whom a limit is about: a task's id, an app's or a sink's name, a host and port."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"

    @staticmethod
    def parse(text: str) -> Subject:
        """Return the subject in a text like `app/shop`.

        Raises:
            BadInput: it is not of that form.
        """
        kind, _, name = text.partition("/")
        if kind not in KINDS or not name:
            raise BadInput(
                f"{text[:60]!r} is no subject of a limit; use task/ID, app/NAME, sink/NAME or "
                f"host/NAME:PORT{did_you_mean(kind, KINDS)}"
            )
        return Subject(kind, name)


class Limit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one subject may take; None is no limit.

    `rate_per_s` is in cost units, as are `total_cost` and `cost_a_day`; `total` and `a_day` count
    pushes. `in_flight` is how many deliveries may be under way at once, over all processes.
    Of an app: `quota` is how many pushes it sends in its turn within a level, `high_part` the part
    of the high level that it may have, and `recipient_a_day` how many pushes a recipient gets from
    it in a day, by level (`all` for all levels together); 0 is none.
    """

    rate_per_s: float | None = None
    in_flight: int | None = None
    total: int | None = None
    total_cost: float | None = None
    a_day: int | None = None
    cost_a_day: float | None = None
    quota: int | None = None
    high_part: float | None = None
    recipient_a_day: dict[str, int] = {}

    @property
    def is_none(self) -> bool:
        return self == Limit()


Limits = dict[Subject, Limit]


async def read_limits(documents: DocumentStore) -> Limits:
    """Return all limits that are set.

    Raises:
        UnknownFormat: only a newer version understands one of them.
    """
    return {Subject.parse(one.name): _decoded(one.body) for one in await documents.list(_KIND)}


class ReadableLimits(NamedTuple):
    """The limits that can be read, and the names of those that only a newer version understands."""

    limits: Limits
    unread: list[str]


async def readable_limits(documents: DocumentStore) -> ReadableLimits:
    """Return all limits that this version understands, and name the others."""
    found = ReadableLimits({}, [])
    for one in await documents.list(_KIND):
        try:
            found.limits[Subject.parse(one.name)] = _decoded(one.body)
        except (UnknownFormat, BadInput):  # the latter: of a kind of subject to come
            found.unread.append(one.name)
    return found


async def change_limit(
    documents: DocumentStore, subject: Subject, edit: Callable[[Limit], Limit]
) -> Limit:
    """Replace a subject's limit by `edit(limit)`, for every process; return the new one.

    Raises:
        BadInput: a limit cannot be so, like one of 0.
        TaskConflict: it is being changed elsewhere again and again.
    """
    name = str(subject)
    for _ in range(_TRIES):
        found = await documents.get(_KIND, name)
        before = Limit() if found is None else _decoded(found.body)
        after = _checked(subject, edit(before))
        if after == before:
            return after
        if after.is_none:
            await documents.remove(_KIND, name)
            return after
        version = found.version if found else None
        if await documents.put(_KIND, name, msgspec.json.encode(after), version) is not None:
            return after
    raise TaskConflict(
        f"the limit of {name} is being changed elsewhere; look at it, then try again"
    )


async def remove_limit(documents: DocumentStore, subject: Subject) -> None:
    """Take all limits of a subject away."""
    await documents.remove(_KIND, str(subject))


def _checked(subject: Subject, limit: Limit) -> Limit:
    for name in (*_AMOUNTS, *_COUNTS):
        value = getattr(limit, name)
        if value is not None:
            _check(subject, name, value, must_be_whole=name in _COUNTS)
    if limit.recipient_a_day and subject.kind != "app":
        raise BadInput(f"recipient_a_day is a limit of an app, and {subject} is none; use app/NAME")
    levels = (*(level.value for level in Level), ALL_LEVELS)
    for level, count in limit.recipient_a_day.items():
        if level not in levels:
            known = ", ".join(levels)
            raise BadInput(f"{level!r} is no level; use {known}{did_you_mean(level, levels)}")
        if count != 0 or isinstance(count, bool | float):  # 0 of a level leaves it unsent
            _check(subject, f"recipient_a_day {level}", count, must_be_whole=True)
    return limit


def _check(subject: Subject, name: str, value: object, *, must_be_whole: bool) -> None:
    kinds = (int,) if must_be_whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not math.isfinite(value):
        raise BadInput(f"{name} {value!r} is no {'whole ' if must_be_whole else ''}number")
    if value == 0:
        what = subject.name if subject.kind == "task" else "TASK"
        raise BadInput(
            f"{name} 0 would let nothing of {subject} go; to stop a task: pushlane pause {what}; "
            "to take a limit away give none"
        )
    if value < 0:
        raise BadInput(f"{name} {value:g} is below 0; use a number above it")


def _decoded(body: bytes) -> Limit:
    try:
        return msgspec.json.decode(body, type=Limit)
    except msgspec.DecodeError as error:
        raise UnknownFormat(0, "a limit") from error
