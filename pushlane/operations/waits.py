"""How answers tell where the waits of pushes went, and the words in which it is shown."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pushlane.core.errors import PushlaneError
from pushlane.core.task import Task
from pushlane.model.wait_words import WAITED as WAITED
from pushlane.model.wait_words import label as label
from pushlane.model.wait_words import parts_of as parts_of
from pushlane.model.wait_words import sentence as sentence
from pushlane.model.wait_words import told_if_sent as told_if_sent
from pushlane.model.wait_words import told_of_many as told_of_many
from pushlane.model.wait_words import took_text as took_text
from pushlane.model.wait_words import untold_text as untold_text
from pushlane.operations.session import Session
from pushlane.util.extras import needs_extra

_MOST_S = 2.0
_BEFORE_MS = 60_000  # counts are by the minute


class WaitPartView(msgspec.Struct, frozen=True):
    """The part that one cause has in the waits of delivered pushes: `n` of them had it.

    The cause `waited` is the whole wait, from submitted to dispatched, of the `n` pushes of which
    the parts are known. Quantiles are over the `n` pushes.
    """

    cause: str
    n: int
    total_ms: int
    p50_ms: int
    p95_ms: int


class LevelWaitView(WaitPartView, frozen=True):
    """The same of a level."""

    level: str


async def waits_so_far(at: Session, task: Task) -> Sequence[WaitPartView]:
    """Return where the wait of what was delivered of a task went, as the store of reports has it.

    The whole comes first. It is empty where there is no store, where that does not tell, and where
    it cannot be read within 2 s: who asks wants to know something else besides.
    """
    if not at.settings.has_reports:
        return ()
    most_s = min(at.reads.bounds.most_s or _MOST_S, _MOST_S)
    bounds, root = at.reads.bounds._replace(most_s=most_s), at.settings.reports_root
    since_ms = max(0, task.created_at_ms - _BEFORE_MS)
    try:
        async with at.reads.one():
            with needs_extra("pipeline", "the store of reports"):
                from pushlane.pipeline.reports.query_runner import waits_of
            found = await at.reads.in_thread(lambda: waits_of(root, task.id, since_ms, bounds))
    except PushlaneError:
        return ()
    return [WaitPartView(*one) for one in found]
