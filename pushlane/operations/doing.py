"""Does operations on a backend for one caller, and writes what they change to the audit."""

from __future__ import annotations

import logging
from typing import Any, TypeVar

from pushlane.backends.backend import Backend
from pushlane.core.errors import PushlaneError
from pushlane.core.task import now_ms
from pushlane.model import audit
from pushlane.model.access import Role
from pushlane.model.documents import DocumentStore
from pushlane.model.mode import refuse_read_only
from pushlane.operations.long_reads import LongReads
from pushlane.operations.operation import ETag, Of, Operation
from pushlane.operations.session import Begun, Beside, Caller, Change, Session, untold
from pushlane.settings import Settings
from pushlane.util.errors import NotAllowed, Unseen

log = logging.getLogger("pushlane.operations")

Result = TypeVar("Result")


async def do(
    backend: Backend,
    settings: Settings,
    caller: Caller,
    operation: Operation[Result],
    begun: Begun = untold,
    beside: Beside | None = None,
    reads: LongReads | None = None,
) -> Result:
    """Do an operation, and return its view. `reads` bounds what looks through all receipts.

    Raises what the operation does, NotAllowed where it is not the caller's to do, NotNow for a
    change while nothing may be changed, and Unseen where it has to say what it has seen.
    """
    kind = type(operation)
    session = Session(backend, settings, caller, begun, beside or Beside(), reads or LongReads())
    refuse(session, operation)
    if kind.changes and not kind.ends_read_only:
        await refuse_read_only(backend.documents)
    try:
        return await operation.run(session)
    finally:
        await _audit(session, kind)


def refuse_role(caller: Caller, needed: Role, what: str) -> None:
    """Raise NotAllowed where a caller's role is not enough."""
    has = caller.access.role
    if not has.may(needed):
        raise NotAllowed(f"{caller.name} has the role {has}, and {what} needs {needed}")


def refuse(session: Session, operation: Operation[Any]) -> None:
    """Raise NotAllowed for what the caller may not do, whatever it is done to."""
    kind, caller = type(operation), session.caller
    refuse_role(caller, kind.role, kind.word())
    if kind.etag is ETag.NEEDED and session.beside.seen == frozenset():
        raise Unseen(
            f"{kind.word()} overwrites a value: send `If-Match` with the ETag of the GET that "
            "you have read, or `If-Match: *` to overwrite any value"
        )
    if session.apps is None:
        return
    if kind.of is Of.EVERYTHING:
        raise NotAllowed(
            f"{kind.word()} is about all apps, and {caller.name} is for "
            f"{', '.join(sorted(session.apps))} alone: use a token of all apps"
        )
    if app := getattr(operation, "app", ""):
        session.require_app(app)


async def _audit(session: Session, kind: type[Operation[Any]]) -> None:
    """Write what was noted. Where that cannot be, the log has it: what is done stays done.

    What was to be revealed is not shown then: it raises.
    """
    caller, at_ms, operation = session.caller, now_ms(), kind.word()
    for change in session._noted:
        what = change.subject, change.before, change.after, change.app
        entry = audit.Entry(at_ms, caller.name, caller.face, operation, *what)
        try:
            await _write(session.backend.documents, change, entry)
        except PushlaneError as error:
            if not kind.changes:
                raise
            told = "%s of %s by %s is done, but could not be written to the audit: %s"
            extra = {"action": "not_audited"}
            log.warning(told, operation, change.subject, caller.name, error, extra=extra)


async def _write(documents: DocumentStore, change: Change, entry: audit.Entry) -> None:
    earlier = change.counts_into
    if not (earlier and await audit.count_into(documents, earlier, entry)):
        await audit.write(documents, entry, change.name)
