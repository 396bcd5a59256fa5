"""`audit` shows who changed what, from what to what, and when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pushlane.cli.doing import done
from pushlane.cli.flags import Flags, JsonFlag, option
from pushlane.cli.render import Column, print_rows, time_text
from pushlane.model.audit import Entry
from pushlane.operations.processes import ListAudit
from pushlane.operations.views import plain

_COLUMNS: tuple[Column[Entry], ...] = (
    Column("AT", lambda one: time_text(one.at_ms)),
    Column("WHO", lambda one: f"{one.who} ({one.face})", elastic=True),
    Column("DID", lambda one: one.operation),
    Column("SUBJECT", lambda one: one.subject, elastic=True),
    Column("FROM", lambda one: _text(one.before), elastic=True),
    Column("TO", lambda one: _text(one.after), elastic=True),
)


def audit(
    flags: Flags,
    find: Annotated[
        str, option("TEXT", "Only entries with this text in caller, operation or subject.")
    ] = "",
    limit: Annotated[int, option("N", "The newest so many; 0 for all.", min=0)] = 100,
    as_json: JsonFlag = False,
) -> None:
    """Show who changed what, from what to what, newest first."""
    settings = flags.settings()
    found = done(settings, ListAudit(find=find, limit=limit))
    nothing = f"nothing was changed {settings.place}"
    print_rows(_COLUMNS, found, plain, as_json=as_json, nothing=nothing)


def _text(fields: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in fields.items()) or "-"
