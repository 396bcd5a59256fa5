"""Operations by which each push of a task is told, and named by who knows its recipient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pushlane.backends.queries import receipt_hasher
from pushlane.core.errors import BadInput
from pushlane.model.access import Access
from pushlane.model.recipients import Hasher
from pushlane.operations.operation import Of, Operation, Role
from pushlane.operations.paging import AtMost, note_next, place_of
from pushlane.operations.session import Session
from pushlane.operations.tasks import TaskWord
from pushlane.util.errors import NotAllowed

MOST_HASHED = 10_000
_LISTED = 1_000
_BITS = 2**64
_NO_CURSOR = "cursor is not one that a page has given; leave it out to start again"


class EndView(msgspec.Struct, frozen=True, kw_only=True):
    """How a push ended; `recipient` is masked. Times are Unix ms, 0 if not known.

    `recipient_hash` is absent unless it was asked for. `waits` has, by cause, the ms from submitted
    to dispatched; absent where the version that wrote the receipt did not tell.
    """

    seq: int
    outcome: str
    reason: str
    attempt: int
    sink: str
    recipient: str
    submitted_at_ms: int
    dispatched_at_ms: int
    responded_at_ms: int
    trace_id: str
    recipient_hash: str | None
    waits: Mapping[str, int] | None = None


class ListEnds(Operation[list[EndView]], frozen=True, kw_only=True):
    """List how the pushes of a task ended, one by one, in the order of the log of receipts.

    A page may have fewer than `limit`, even none, and go on all the same. A push that ended twice,
    after a process was killed, is there twice: the one with the earlier `responded_at_ms` counts.
    """

    method, path, role, of = "GET", "/tasks/{task}/ends", Role.VIEWER, Of.TASK
    commands = ("results",)

    task: TaskWord
    hashes: Annotated[bool, Meta(description="With `recipient_hash`, for submitters.")] = False
    limit: AtMost = _LISTED
    cursor: Annotated[
        str, Meta(max_length=20_000, description="Go on behind the page that ended with this.")
    ] = ""

    async def run(self, at: Session) -> list[EndView]:
        from pushlane.diagnosis.ends import EndsPlace, ends_of

        if self.hashes:
            _refuse_hashes(at.caller.access, at.caller.name)
        task = await at.task(self.task)
        given, place = place_of(self), None
        if given:
            try:
                place = msgspec.json.decode(given, type=EndsPlace)
            except msgspec.DecodeError as error:
                raise BadInput(_NO_CURSOR) from error
        try:
            found = await ends_of(
                at.backend.receipts,
                task,
                place,
                limit=self.limit,
                patience_s=at.reads.bounds.page_s,
            )
        except (ValueError, IndexError) as error:
            if place is None:
                raise
            raise BadInput(_NO_CURSOR) from error
        if found.next is not None:
            note_next(at, self, msgspec.json.encode(found.next).decode())
        return [_view(row, with_hash=self.hashes) for row in found.rows]


class Hashes(msgspec.Struct, frozen=True):
    """The hashes of recipients in receipts, in the order of the recipients."""

    hashes: Sequence[str]


class HashRecipients(Operation[Hashes], frozen=True, kw_only=True):
    """Say which `recipient_hash` receipts have for these recipients. They are not kept.

    So who has the recipients finds their receipts, without the key of the hashes.
    """

    method, path, role, of = "POST", "/recipients/hashes", Role.SUBMITTER, Of.APPS
    commands = ("results",)

    recipients: Annotated[
        tuple[str, ...], Meta(max_length=MOST_HASHED, description="As they were submitted.")
    ]

    async def run(self, at: Session) -> Hashes:
        hasher = await receipt_hasher(at.backend.receipts, at.settings)
        return Hashes(hash_texts(hasher, self.recipients))


def hash_texts(hasher: Hasher, recipients: Sequence[str]) -> list[str]:
    """Return the hashes of recipients, as `EndView` has them."""
    return [_text(each) for each in hasher.hashes(recipients)]


def _text(hashed: int) -> str:
    return f"{hashed % _BITS:016x}"


def _view(row: Any, *, with_hash: bool) -> EndView:
    shown = row._asdict()
    del shown["task_id"]
    shown["recipient_hash"] = _text(row.recipient_hash) if with_hash else None
    return EndView(**shown)


def _refuse_hashes(access: Access, name: str) -> None:
    if not access.role.may(Role.SUBMITTER):
        raise NotAllowed(
            f"{name} has the role {access.role}, and hashes of recipients need {Role.SUBMITTER}"
        )
