"""Reads what became of single pushes: the one reader of all that shows it.

Where there is a store of reports it answers, with what the log of receipts has behind it; else the
log does, by position.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from pushlane.core.errors import BadInput
from pushlane.operations.session import Session
from pushlane.util.extras import needs_extra

if TYPE_CHECKING:
    from pushlane.diagnosis.story import Story, Wanted

OF_LOG = "the log of receipts"
OF_STORE = "the store of reports and the log of receipts behind it"
_OFF = "receipts are off (receipts=off): what was sent meanwhile has left none"


async def read_story(at: Session, wanted: Wanted) -> Story:
    """Return the receipts that are wanted, and what may be missing.

    Raises Unreachable when the log does not answer, BadInput when it takes too long, NotNow while
    there are enough reads, CorruptStore for a store that cannot be read.
    """
    from pushlane.diagnosis.story import story_of

    notes = [_OFF] if at.settings.receipts == "off" else []
    async with at.reads.one():
        pushes = _pushes(notes) if at.settings.has_reports else None
        if pushes is None:
            story = await story_of(at.backend.receipts, wanted)
        else:
            root, bounds = at.settings.reports_root, at.reads.bounds
            found = await at.reads.in_thread(lambda: pushes.read_pushes(root, wanted, bounds))
            notes += found.notes
            story = await story_of(at.backend.receipts, wanted, found.known)
    story.source = OF_LOG if pushes is None else OF_STORE
    story.notes = notes
    return story


def _pushes(notes: list[str]) -> ModuleType | None:
    """Return what reads the store; None where its packages are not installed, which is noted."""
    try:
        with needs_extra("pipeline", "the store of reports"):
            from pushlane.pipeline.reports import pushes
    except BadInput as error:
        notes.append(f"the log alone was read: {error}")
        return None
    return pushes
