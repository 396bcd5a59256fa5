"""Keeps in the store whether a line's target has ever delivered, and tells the line's breaker.

It looks once a second: nothing is written for each delivery, and what the store does not take yet
is offered again. What is known of a target is read at the start, when the sink leads elsewhere, and
while it rests or its answers are accepted: another process may have delivered, or somebody may have
accepted its answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from pushlane.core.errors import PushlaneError, UnknownFormat
from pushlane.core.retrying import Backoff
from pushlane.dispatcher.outage import Outage
from pushlane.dispatcher.standing import TargetStanding, TargetWords
from pushlane.lanes.once import Once
from pushlane.lanes.ports import DocumentStore
from pushlane.lanes.target_history import note_delivered, target_history
from pushlane.model.presence import SinkTarget

log = logging.getLogger("pushlane.outage")

_EVERY_S = 1.0
_QUESTIONS = {
    "webhook": "is the URL right?",
    "http": "is the URL right?",
    "fcm": "is the project right?",
    "apns": "are topic and environment right?",
}


class TargetMemory:
    """Follows the standing of one target: `target` returns what the sink delivers to now.

    `wake` is called when something new was learned, so that more may go.
    """

    def __init__(
        self,
        documents: DocumentStore,
        target: Callable[[], SinkTarget | None],
        outage: Outage,
        clock_ms: Callable[[], int],
        wake: Callable[[], None],
    ) -> None:
        self._documents = documents
        self._target = target
        self._outage = outage
        self._clock_ms = clock_ms
        self._wake = wake
        self._known: SinkTarget | None = None
        self._standing = TargetStanding.UNKNOWN
        self._once = Once(log)

    async def run(self) -> None:
        """Look again and again, for ever."""
        backoff = Backoff(log, "what is kept of targets")
        while True:
            await backoff.until_done(self.look)
            await asyncio.sleep(_EVERY_S)

    async def look(self) -> None:
        """Read what is kept of the target where that may have changed; keep that it delivered.

        Raises:
            Unreachable: the store does not answer.
        """
        target = self._target()
        if target is None or not target.delivers:
            return
        is_other = target != self._known
        if is_other or self._may_have_changed():
            await self._learn(target, is_other=is_other)
        if self._outage.has_delivered and self._standing in (
            TargetStanding.NEW,
            TargetStanding.ACCEPTED,
        ):
            await note_delivered(self._documents, target.hash, self._clock_ms())
            self._standing = TargetStanding.PROVEN

    async def drain(self, timeout_s: float) -> None:
        """Keep what is not kept yet, as far as time allows: the next delivery would tell again."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.look()
        except (TimeoutError, PushlaneError):
            log.info("it is not kept yet whether the target delivers", extra={"action": "not_kept"})

    def _may_have_changed(self) -> bool:
        if self._standing is TargetStanding.NEW:
            return self._outage.rests
        return self._standing is TargetStanding.ACCEPTED and not self._outage.has_delivered

    async def _learn(self, target: SinkTarget, *, is_other: bool) -> None:
        self._standing = await self._read(target)
        question = _QUESTIONS.get(target.kind)
        words = TargetWords(str(target), question) if question else TargetWords(str(target))
        self._outage.learn(self._standing, words, is_other=is_other)
        self._known = target
        self._wake()

    async def _read(self, target: SinkTarget) -> TargetStanding:
        try:
            history = await target_history(self._documents, target.hash)
        except UnknownFormat as error:
            self._once.tell(target.hash, error)
            return TargetStanding.UNKNOWN
        if history.delivered_at_ms:
            return TargetStanding.PROVEN
        return TargetStanding.ACCEPTED if history.accepted_at_ms else TargetStanding.NEW
