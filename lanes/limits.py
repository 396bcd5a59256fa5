"""Limits: what a task, an app, a sink or a host may take, changeable at runtime.

Each is a small document under its subject, like `app/shop`, that every dispatcher follows. A limit
that is not set is none. A cost is what the sink's settings say that one push costs, 1 unless given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from pushlane.lanes.errors import BadInput, TaskConflict, UnknownFormat
from pushlane.lanes.ports import DocumentStore
from pushlane.lanes.suggestions import did_you_mean

KINDS = ("task", "app", "sink", "host")
EVERY_APP = "*"
"""As the name of an app: every app that has no such limit of its own."""

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
    it in a day, by level (`all` for all levels together).
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


async def change_limit(
    documents: DocumentStore, subject: Subject, edit: Callable[[Limit], Limit]
) -> Limit:
    """Replace a subject's limit by `edit(limit)`, for every process; return the new one.

    Raises:
        TaskConflict: it is being changed elsewhere again and again.
    """
    name = str(subject)
    for _ in range(_TRIES):
        found = await documents.get(_KIND, name)
        before = Limit() if found is None else _decoded(found.body)
        after = edit(before)
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


def _decoded(body: bytes) -> Limit:
    try:
        return msgspec.json.decode(body, type=Limit)
    except msgspec.DecodeError as error:
        raise UnknownFormat(0, "a limit") from error
