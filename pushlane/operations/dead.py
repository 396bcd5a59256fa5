"""Operations on dead pushes: list them, look at one, retry or purge them."""

from __future__ import annotations

from typing import Annotated, Any, Generic

import msgspec
from msgspec import Meta

from pushlane.core.errors import BadInput, MalformedPush, UnknownFormat, UserError
from pushlane.core.push import DeadPush, decode
from pushlane.operations.looks import MessageView, message_view
from pushlane.operations.operation import LONGEST_S, Of, Operation, Result, Role, read_by
from pushlane.operations.paging import Cursor, cut, place_of
from pushlane.operations.session import Session
from pushlane.producers.dead import (
    NO_TASK,
    DeadLetters,
    DeadRetry,
    FoundDead,
    Purge,
    Retried,
    Selection,
    chosen,
    push_id,
    task_of_push,
)
from pushlane.util.conversion import seconds
from pushlane.util.errors import UnknownTask

_LISTED = 100


def _age_s(what: str, given: object) -> float:
    return seconds(what, given, 0, LONGEST_S)


Pushes = Annotated[
    tuple[str, ...], Meta(max_length=10_000, description="Just these, like TASK-SEQ.")
]
OfTask = Annotated[
    str, Meta(description="Only of this task: id, key or name; - for messages that are no push.")
]
Reason = Annotated[str, Meta(description="Only if the reason holds this.")]
OlderThan = Annotated[
    float,
    read_by(_age_s),
    Meta(ge=0, le=LONGEST_S, description="Only if dead for longer, in seconds."),
]
NewerThan = Annotated[
    float,
    read_by(_age_s),
    Meta(ge=0, le=LONGEST_S, description="Only if dead for less, in seconds."),
]


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead push: why it died, when (Unix ms) and at which sink.

    `message` is what it held: absent unless it was asked for, as is `bytes_hex`, of a message that
    is no push. `bytes` is how long that is.
    """

    push: str
    task: str
    seq: int
    sink: str | None
    attempt: int
    reason: str
    died_at_ms: int
    bytes: int | None = None
    message: MessageView | None = None
    bytes_hex: str | None = None


class DeadPage(msgspec.Struct, frozen=True):
    """Dead pushes. `is_cut` tells that there are more."""

    dead: list[DeadLetter]
    is_cut: bool


class RetriedView(msgspec.Struct, frozen=True):
    """The retry of pushes of a task: the task they go on in, or why they cannot."""

    task: str
    pushes: int
    retried_as: str | None = None
    problem: str | None = None


class Purged(msgspec.Struct, frozen=True):
    """How many were deleted; `is_cut` tells that there may be more than were counted."""

    purged: int
    is_cut: bool = False


class _Chosen(Operation[Result], Generic[Result], frozen=True, kw_only=True):
    """A choice of dead pushes, by all that is given."""

    task: OfTask = ""
    reason: Reason = ""
    older_than_s: OlderThan = 0
    newer_than_s: NewerThan = 0

    @property
    def is_chosen(self) -> bool:
        return bool(self.task or self.reason or self.older_than_s or self.newer_than_s)

    async def selection(self, at: Session, limit: int, pushes: tuple[str, ...] = ()) -> Selection:
        """Return the selection. Raises UnknownTask, or BadInput for what chooses nothing."""
        if self.older_than_s and self.newer_than_s and self.older_than_s >= self.newer_than_s:
            raise BadInput(
                f"nothing is dead for longer than {self.older_than_s:g} s and for less than "
                f"{self.newer_than_s:g} s; give newer_than_s the longer age, or leave one out"
            )
        return await chosen(
            at.backend,
            task=await _own(at, self.task, pushes),
            pushes=pushes,
            reason=self.reason,
            older_than_ms=round(1000 * self.older_than_s),
            newer_than_ms=round(1000 * self.newer_than_s),
            limit=limit,
        )


async def _own(at: Session, task: str, pushes: tuple[str, ...]) -> str:
    """Return the task that is chosen, which has to be the caller's, as those of the pushes have.

    Raises UnknownTask for one that is not, and BadInput where none is named by who sees some apps.
    """
    if at.apps is None:
        return task
    if not (task or pushes):
        raise BadInput(f"name a task of {', '.join(sorted(at.apps))}: you see no others")
    for word in {task_of_push(push) for push in pushes}:
        await at.task(word)
    return (await at.task(task)).id if task else ""


class ListDead(_Chosen[DeadPage], frozen=True, kw_only=True):
    """List dead pushes, lane by lane, as they came there, without what they hold."""

    method, path, role, of = "GET", "/dead", Role.VIEWER, Of.TASK
    commands = ("dead list",)

    limit: Annotated[int, Meta(ge=0, description="At most so many; 0 for all.")] = _LISTED
    cursor: Cursor = ""

    async def run(self, at: Session) -> DeadPage:
        selection = await self.selection(at, self.limit + 1 if self.limit else 0)
        found = await DeadLetters(at.backend).page(selection, place_of(self))
        shown = cut(at, self, found, lambda one: one.place)
        return DeadPage([view_of_dead(one.dead) for one in shown], len(found) > len(shown))

    @staticmethod
    def size(page: DeadPage) -> int:
        return len(page.dead)

    @staticmethod
    def joined(page: DeadPage, following: DeadPage) -> DeadPage:
        return DeadPage([*page.dead, *following.dead], following.is_cut)


class GetDead(Operation[DeadLetter], frozen=True, kw_only=True):
    """Show one dead push: why it died, and on request what it holds, which is in the audit."""

    method, path, role, of = "GET", "/dead/{push}", Role.OPERATOR, Of.TASK
    commands = ("dead show",)

    push: Annotated[str, Meta(description="Its id, like TASK-SEQ.")]
    reveal: Annotated[bool, Meta(description="With recipient and content.")] = False

    async def run(self, at: Session) -> DeadLetter:
        await _own(at, "", (self.push,))
        task_of_push(self.push)
        found = await DeadLetters(at.backend).find(Selection(pushes=frozenset([self.push])))
        if not found.letters:
            raise UserError(missing_text(self.push, found))
        dead = found.letters[-1].dead
        if self.reveal:
            at.revealed(push_id(dead), await _app_of(at, dead))
        return view_of_dead(dead, whole=True, reveal=self.reveal)


async def _app_of(at: Session, dead: DeadPush) -> str:
    """Return whose a dead push is; of one whose task is gone nobody knows that any more."""
    try:
        return (await at.task(dead.task_id)).app
    except UnknownTask:
        return ""


class _Bounded(_Chosen[Result], Generic[Result], frozen=True, kw_only=True):
    """A choice that something is done to: it has to be bounded, or said to be of all."""

    pushes: Pushes = ()
    limit: Annotated[int, Meta(ge=0, description="At most so many; 0 for all.")] = 0
    all_there_are: Annotated[bool, Meta(description="All, if nothing else is said.")] = False

    async def bounded(self, at: Session) -> Selection:
        """Return the selection. Raises BadInput when nothing chooses."""
        if not (self.is_chosen or self.pushes or self.all_there_are):
            raise BadInput(
                "say which dead pushes: give pushes, task, reason, older_than_s or newer_than_s; "
                "or all_there_are"
            )
        return await self.selection(at, self.limit, self.pushes)


class RetryDead(_Bounded[list[RetriedView]], frozen=True, kw_only=True):
    """Send dead pushes again, in a new task for each of their tasks."""

    method, path, role, of = "POST", "/dead/retry", Role.OPERATOR, Of.TASK
    commands = ("dead retry",)
    changes = True

    async def run(self, at: Session) -> list[RetriedView]:
        selection = await self.bounded(at)
        retry = DeadRetry(at.backend, at.settings, DeadLetters(at.backend))
        try:
            return [_retried(one) for one in await retry.run(selection)]
        finally:
            for one in retry.sent:
                _note_retried(at, "retried", one)
            if retry.in_doubt is not None:
                _note_retried(at, "perhaps retried", retry.in_doubt)


class CountDead(_Bounded[Purged], frozen=True, kw_only=True):
    """Count what a purge would delete."""

    method, path, role, of = "POST", "/dead/count", Role.OPERATOR, Of.TASK
    commands = ("dead purge",)

    async def run(self, at: Session) -> Purged:
        found = await DeadLetters(at.backend).find(await self.bounded(at))
        return Purged(len(found.letters), bool(found.cut))


class PurgeDead(_Bounded[Purged], frozen=True, kw_only=True):
    """Delete dead pushes for good."""

    method, path, role, of = "POST", "/dead/purge", Role.OPERATOR, Of.TASK
    commands = ("dead purge",)
    changes = destroys = True

    async def run(self, at: Session) -> Purged:
        selection, purge = await self.bounded(at), Purge()
        try:
            return Purged(await DeadLetters(at.backend).purge(selection, purge))
        finally:
            noted = {"purged": purge.removed, "perhaps purged": purge.in_doubt}
            if counts := {what: count for what, count in noted.items() if count}:
                at.changed(f"task/{selection.task}" if selection.task else "dead", {}, counts)


def missing_text(push: str, found: FoundDead) -> str:
    """Say that a push is not dead, and which lanes were not looked through to the end."""
    cut = (
        f" (lane {', '.join(found.cut)} holds more than can be looked through)" if found.cut else ""
    )
    return (
        f"there is no dead push {push}: it has not died, or was retried or purged; `pushlane dead "
        f"list` shows what there is{cut}"
    )


def view_of_dead(dead: DeadPush, *, whole: bool = False, reveal: bool = False) -> DeadLetter:
    """Return a dead push as it is shown."""
    return DeadLetter(
        push=push_id(dead),
        task=dead.task_id or NO_TASK,
        seq=dead.seq,
        sink=dead.sink or None,
        attempt=dead.attempt,
        reason=dead.reason,
        died_at_ms=dead.died_at_ms,
        bytes=len(dead.body) if whole else None,
        **(_content(dead) if reveal else {}),
    )


def _content(dead: DeadPush) -> dict[str, Any]:
    """Return what the push holds, or the bytes of a message that is no push."""
    try:
        return {"message": message_view(decode(dead.body))}
    except (MalformedPush, UnknownFormat):
        return {"bytes_hex": dead.body.hex()}


def _note_retried(at: Session, what: str, one: Retried) -> None:
    at.changed(f"task/{one.task_id}", {}, {what: one.count, "as": one.retried_as})


def _retried(one: Retried) -> RetriedView:
    return RetriedView(one.task_id, one.count, one.retried_as or None, one.problem or None)
