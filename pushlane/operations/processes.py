"""Operations on what runs and what was done: processes, formats, the audit."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from pushlane.backends.formats import min_format, set_min_format
from pushlane.core.push import FORMAT
from pushlane.model.audit import Entry as Entry
from pushlane.model.audit import entries
from pushlane.model.presence import Process as Process
from pushlane.operations.operation import ETag, Of, Operation, Role
from pushlane.operations.paging import AtMost, Cursor, page
from pushlane.operations.session import Session


class ListProcesses(Operation[list[Process]], frozen=True, kw_only=True):
    """List the processes that dispatch now, in the order of their starts."""

    method, path, role, of = "GET", "/processes", Role.VIEWER, Of.EVERYTHING
    commands = ("processes",)

    limit: AtMost = 0
    cursor: Cursor = ""

    async def run(self, at: Session) -> list[Process]:
        live = {_place(one): one for one in await at.backend.presence.list()}
        shown = page(at, self, sorted(live.items()), lambda placed: placed[0])
        return [one for _, one in shown]


class FormatsView(msgspec.Struct, frozen=True):
    """Formats of messages: producers write up to `min_format`, who was asked reads `this_reads`.

    `all_read` is what every live process reads; absent when there is none.
    """

    min_format: int
    this_reads: int
    all_read: int | None


class GetFormats(Operation[FormatsView], frozen=True, kw_only=True):
    """Show which formats of messages are read, and which may be written."""

    method, path, role, of = "GET", "/formats", Role.VIEWER, Of.EVERYTHING
    commands = ("formats",)
    etag = ETag.SHOWN

    async def run(self, at: Session) -> FormatsView:
        return await _formats(at)


class SetFormats(Operation[FormatsView], frozen=True, kw_only=True):
    """Let producers write messages up to a format, once every live process reads it."""

    method, path, role, of = "PUT", "/formats", Role.ADMIN, Of.EVERYTHING
    commands = ("formats",)
    changes = True
    etag = ETag.NEEDED

    min_format: Annotated[int, Meta(ge=1, description="The highest format to write.")]

    async def run(self, at: Session) -> FormatsView:
        before = await set_min_format(
            at.backend.documents,
            at.backend.presence,
            self.min_format,
            check=lambda there: at.require_seen("formats", _format_set(there)),
        )
        at.changed("formats", _format_set(before), _format_set(self.min_format))
        return await _formats(at)


class ListAudit(Operation[list[Entry]], frozen=True, kw_only=True):
    """Show who changed what, from what to what, newest first."""

    method, path, role, of = "GET", "/audit", Role.OPERATOR, Of.APPS
    commands = ("audit",)

    find: Annotated[
        str, Meta(description="Only entries with this text in caller, operation or subject.")
    ] = ""
    limit: Annotated[int, Meta(ge=0, description="The newest so many; 0 for all.")] = 100
    cursor: Cursor = ""

    async def run(self, at: Session) -> list[Entry]:
        found = await entries(at.backend.documents)
        fits = [
            (name, one)
            for name, one in found
            if at.sees(one.app)
            and any(self.find in text for text in (one.who, one.operation, one.subject))
        ]
        shown = page(at, self, fits, lambda named: named[0], is_descending=True)
        return [one for _, one in shown]


def _place(process: Process) -> str:
    """Return the place of a process among all: by its start, then by its id."""
    return f"{process.started_at_ms:020d}-{process.id}"


async def _formats(at: Session) -> FormatsView:
    live = [process.format for process in await at.backend.presence.list()]
    lowest = await min_format(at.backend.documents)
    at.show("formats", _format_set(lowest))
    return FormatsView(lowest, FORMAT, min(live, default=None))


def _format_set(lowest: int) -> dict[str, Any]:
    return {"min_format": lowest}
