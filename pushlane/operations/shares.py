"""Operations on who gets how much: the weights of levels, limits, the turns of apps."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pushlane.core.errors import BadInput, TaskConflict
from pushlane.core.task import MAX_WEIGHT, Weights
from pushlane.model.limits import (
    Check,
    Limit,
    Subject,
    app_share,
    clear_app_share,
    limit_of,
    set_app_share,
)
from pushlane.operations.known import unknown_text
from pushlane.operations.operation import ETag, Of, Operation, Role, read_by
from pushlane.operations.paging import AtMost, Cursor, page
from pushlane.operations.session import Session
from pushlane.producers.limit_changes import (
    LimitInUse,
    clear_limit,
    find_subject,
    limit_in_use,
    limits_in_use,
    set_limit,
)
from pushlane.util.conversion import text, whole
from pushlane.util.errors import NotAllowed


def _subject(what: str, given: Any) -> str:
    return str(given) if isinstance(given, Subject) else text(what, given)


def _weights(what: str, given: Any) -> str:
    if not isinstance(given, Weights):
        return text(what, given)
    each = given.by_level().items()
    return ":".join(str(whole(f"weight of {level}", one, 0, MAX_WEIGHT)) for level, one in each)


_TRIES = 10

SubjectWord = Annotated[
    str,
    read_by(_subject),
    Meta(
        description="A task's id, key or name, or task/ID, app/NAME, app/* or sink/NAME.",
    ),
]
AppWord = Annotated[str, Meta(description="The app; * is every app without its own.")]
Rate = float | str | None | UnsetType
Number = float | str | None | UnsetType
Count = int | str | None | UnsetType
Caps = dict[str, int] | None | UnsetType


class LevelShare(msgspec.Struct, frozen=True):
    """The weight of a level, and how much of the sink that is while all levels have a backlog."""

    weight: int
    percent: float


class LevelShares(msgspec.Struct, frozen=True):
    """How the levels share the sink."""

    high: LevelShare
    medium: LevelShare
    low: LevelShare

    @property
    def weights(self) -> Weights:
        return Weights(self.high.weight, self.medium.weight, self.low.weight)


class LimitView(msgspec.Struct, frozen=True):
    """The limits of a subject like `app/shop`, and what is held and spent of them today.

    `remark` says where nobody knows the subject yet.
    """

    subject: str
    limit: Limit
    used: dict[str, float] = {}
    remark: str | None = None


class AppQuota(msgspec.Struct, frozen=True):
    """How many pushes an app sends in its turn, and the part of the high level that it may have."""

    app: str
    quota: int | None = None
    high_part: float | None = None
    remark: str | None = None


class GetLevels(Operation[LevelShares], frozen=True, kw_only=True):
    """Show how the levels share the sink."""

    method, path, role, of = "GET", "/levels", Role.VIEWER, Of.EVERYTHING
    commands = ("levels",)
    etag = ETag.SHOWN

    async def run(self, at: Session) -> LevelShares:
        weights = await at.backend.registry.weights()
        at.show("levels", _weights_set(weights))
        return _shares(weights)


class SetLevels(Operation[LevelShares], frozen=True, kw_only=True):
    """Share the sink like this from now on, what is waiting already included."""

    method, path, role, of = "PUT", "/levels", Role.OPERATOR, Of.EVERYTHING
    commands = ("levels",)
    changes = True
    etag = ETag.NEEDED

    weights: Annotated[
        str, read_by(_weights), Meta(description="High, medium and low, like 6:3:1.")
    ]

    async def run(self, at: Session) -> LevelShares:
        wanted, registry = Weights.parse(self.weights), at.backend.registry
        for _ in range(_TRIES):
            before = await registry.weights()
            at.require_seen("levels", _weights_set(before))
            if await registry.set_weights(wanted, over=before):
                at.changed("levels", _weights_set(before), _weights_set(wanted))
                at.show("levels", _weights_set(wanted))
                return _shares(wanted)
        raise TaskConflict("the levels are being changed elsewhere; look at them, then try again")


class ListLimits(Operation[list[LimitView]], frozen=True, kw_only=True):
    """Show all limits that are set, and what is used of them."""

    method, path, role, of = "GET", "/limits", Role.VIEWER, Of.APPS
    commands = ("limits",)

    limit: AtMost = 0
    cursor: Cursor = ""

    async def run(self, at: Session) -> list[LimitView]:
        found = await limits_in_use(at.backend)
        seen = [one for one in found if await _sees(at, one.subject)]
        return [_limit_view(one) for one in page(at, self, seen, lambda one: str(one.subject))]


class GetLimit(Operation[LimitView], frozen=True, kw_only=True):
    """Show the limits of a task, an app or a sink, and what is used of them."""

    method, path, role, of = "GET", "/limits/{subject}", Role.VIEWER, Of.APPS
    commands = ("limit",)
    etag = ETag.SHOWN

    subject: SubjectWord

    async def run(self, at: Session) -> LimitView:
        subject = await subject_of(at, self.subject)
        return await _shown(at, subject)


class SetLimit(Operation[LimitView], frozen=True, kw_only=True):
    """Limit what a task, an app or a sink may take, from now on, over all processes.

    What is not given stays as it is; null takes a limit away.
    """

    method, path, role, of = "PATCH", "/limits/{subject}", Role.OPERATOR, Of.APPS
    commands = ("limit",)
    changes = True
    etag = ETag.NEEDED

    subject: SubjectWord
    rate_per_s: Annotated[Rate, Meta(description="So much cost a second, or like 100/min.")] = UNSET
    in_flight: Annotated[Count, Meta(description="So many deliveries at once.")] = UNSET
    total: Annotated[Count, Meta(description="So many pushes in all.")] = UNSET
    total_cost: Annotated[Number, Meta(description="So much cost in all.")] = UNSET
    a_day: Annotated[Count, Meta(description="So many pushes a day, in UTC.")] = UNSET
    cost_a_day: Annotated[Number, Meta(description="So much cost a day, in UTC.")] = UNSET
    recipient_a_day: Annotated[
        Caps, Meta(description="So many to one recipient a day, by level or `all`.")
    ] = UNSET
    quota: Annotated[Count, Meta(description="Of an app: pushes in its turn.")] = UNSET
    high_part: Annotated[
        Number, Meta(description="Of an app: its part of the high level at most.")
    ] = UNSET

    async def run(self, at: Session) -> LimitView:
        subject = await subject_of(at, self.subject)
        names = (name for name in self.__struct_fields__ if name != "subject")
        given = {name: value for name in names if (value := getattr(self, name)) is not UNSET}
        before = await limit_of(at.backend.documents, subject)
        after = await set_limit(at.backend, subject, given, _check(at, subject))
        at.changed(str(subject), _fields(before), _fields(after), _app(subject))
        return await _shown(at, subject)


class ClearLimit(Operation[LimitView], frozen=True, kw_only=True):
    """Take all limits of a task, an app or a sink away; an app's turns stay."""

    method, path, role, of = "DELETE", "/limits/{subject}", Role.OPERATOR, Of.APPS
    commands = ("limit",)
    changes = True
    etag = ETag.NEEDED

    subject: SubjectWord

    async def run(self, at: Session) -> LimitView:
        subject = await subject_of(at, self.subject)
        [before] = [
            *(one.limit for one in await limits_in_use(at.backend) if one.subject == subject),
            Limit(),
        ][:1]
        after = await clear_limit(at.backend, subject, _check(at, subject))
        at.changed(str(subject), _fields(before), _fields(after), _app(subject))
        at.show(str(subject), _fields(after))
        return LimitView(str(subject), after)


class GetAppQuota(Operation[AppQuota], frozen=True, kw_only=True):
    """Show how many pushes an app sends in its turn within a level."""

    method, path, role, of = "GET", "/apps/{app}/quota", Role.VIEWER, Of.APP
    commands = ("quota",)
    etag = ETag.SHOWN

    app: AppWord

    async def run(self, at: Session) -> AppQuota:
        return await _quota_view(at, self.app, await app_share(at.backend.documents, self.app))


class SetAppQuota(Operation[AppQuota], frozen=True, kw_only=True):
    """Set how many pushes an app sends in its turn within a level, from now on.

    `high_part` is the part of the high level that it may have at most, as long as another app or
    level has something to send. What is not given stays as it is.
    """

    method, path, role, of = "PATCH", "/apps/{app}/quota", Role.OPERATOR, Of.EVERYTHING
    commands = ("quota",)
    changes = True
    etag = ETag.NEEDED

    app: AppWord
    quota: Annotated[int | str | None, Meta(description="Pushes a turn, from 1.")] = None
    high_part: Annotated[
        float | str | None, Meta(description="Like 0.5 for half of the level.")
    ] = None

    async def run(self, at: Session) -> AppQuota:
        documents = at.backend.documents
        before = await app_share(documents, self.app)
        after = await set_app_share(
            documents,
            self.app,
            quota=self.quota,
            high_part=self.high_part,
            check=lambda limit: at.require_seen(_turns(self.app), _turns_set(limit)),
        )
        at.changed(f"app/{self.app}", _fields(before), _fields(after), self.app)
        return await _quota_view(at, self.app, after)


class ClearAppQuota(Operation[AppQuota], frozen=True, kw_only=True):
    """Take the quota of an app and its part of the high level away."""

    method, path, role, of = "DELETE", "/apps/{app}/quota", Role.OPERATOR, Of.EVERYTHING
    commands = ("quota",)
    changes = True
    etag = ETag.NEEDED

    app: AppWord

    async def run(self, at: Session) -> AppQuota:
        documents = at.backend.documents
        before = await app_share(documents, self.app)
        after = await clear_app_share(
            documents,
            self.app,
            lambda limit: at.require_seen(_turns(self.app), _turns_set(limit)),
        )
        at.changed(f"app/{self.app}", _fields(before), _fields(after), self.app)
        at.show(_turns(self.app), _turns_set(after))
        return AppQuota(self.app)


def _shares(weights: Weights) -> LevelShares:
    by_level = weights.by_level()
    total = sum(by_level.values())
    return LevelShares(
        *(LevelShare(weight, round(100 * weight / total, 2)) for weight in by_level.values())
    )


def _limit_view(found: LimitInUse, remark: str | None = None) -> LimitView:
    used = {"in_flight": found.usage.in_flight, **found.usage.spent}
    return LimitView(str(found.subject), found.limit, used, remark)


async def _shown(at: Session, subject: Subject) -> LimitView:
    found = await limit_in_use(at.backend, subject)
    at.show(str(subject), _fields(found.limit))
    return _limit_view(found, await _remark(at, subject))


async def _quota_view(at: Session, app: str, limit: Limit) -> AppQuota:
    at.show(_turns(app), _turns_set(limit))
    return AppQuota(app, limit.quota, limit.high_part, await _remark(at, Subject("app", app)))


def _weights_set(weights: Weights) -> dict[str, Any]:
    return {"weights": str(weights)}


def _check(at: Session, subject: Subject) -> Check:
    """Return what refuses limits of a subject that are not as the caller has seen them."""
    return lambda limit: at.require_seen(str(subject), _fields(limit))


def _turns(app: str) -> str:
    return f"app/{app}/quota"


def _turns_set(limit: Limit) -> dict[str, Any]:
    """Return the turns of an app, which are set apart from its other limits."""
    found = {"quota": limit.quota, "high_part": limit.high_part}
    return {name: value for name, value in found.items() if value is not None}


def _fields(limit: Limit) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(limit)
    return found


async def subject_of(at: Session, word: str) -> Subject:
    """Return the subject that is named, if it is the caller's. Raises as `find_subject` does."""
    if at.apps is None:
        return await find_subject(at.backend, word)
    try:
        subject = Subject.parse(word)
    except BadInput:
        return Subject("task", (await at.task(word)).id)
    if subject.kind == "task":
        return Subject("task", (await at.task(subject.name)).id)
    if subject.kind == "sink":
        raise NotAllowed("all apps share a sink: your token may not see or set its limits")
    at.require_app(subject.name)
    return subject


def _app(subject: Subject) -> str:
    return subject.name if subject.kind == "app" else ""


async def _sees(at: Session, subject: Subject) -> bool:
    if at.apps is None or subject.kind == "app":
        return at.sees(subject.name)
    task = await at.backend.find(subject.name) if subject.kind == "task" else None
    return task is not None and at.sees(task.app)


async def _remark(at: Session, subject: Subject) -> str | None:
    return await unknown_text(at.backend, at.settings, subject) or None
