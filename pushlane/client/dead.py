"""Operations on dead pushes: list them, look at one, retry or purge them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import msgspec

from pushlane.client.connection import Connection
from pushlane.core.errors import BadInput, MalformedPush, UnknownFormat, UserError
from pushlane.core.push import DeadPush, Push, decode
from pushlane.producers.dead import (
    DeadLetters,
    DeadRetry,
    Retried,
    Selection,
    chosen,
    push_id,
    task_of_push,
)
from pushlane.util.conversion import seconds, text, texts, whole

Age = float | timedelta | str
_LISTED = 100


class DeadLetter(msgspec.Struct, frozen=True):
    """A dead push: why it died, when (Unix ms) and at which sink.

    `push` is what it held: None unless it was asked for, and for a message that is no push.
    """

    id: str
    task_id: str
    seq: int
    sink: str
    attempt: int
    reason: str
    died_at_ms: int
    push: Push | None = None


class DeadOperations(Connection):
    """What can be done with dead pushes, each of which is named by its id, TASK-SEQ.

    They are chosen by all that is given: `task` by its id, key or name (`-` for messages that are
    no push), a part of the `reason`, and an age in seconds, as a timedelta or like `2h`. Each
    raises TaskConflict while another process looks through the dead pushes.
    """

    async def dead(
        self,
        *,
        task: str = "",
        reason: str = "",
        older_than: Age = 0,
        newer_than: Age = 0,
        limit: int = _LISTED,
    ) -> list[DeadLetter]:
        """List dead pushes, lane by lane, oldest first, without what they hold; 0 is no limit."""
        selection = await self._chosen((), task, reason, older_than, newer_than, limit)
        found = await DeadLetters(self._open).find(selection)
        return [_letter(one.dead) for one in found.letters]

    async def dead_push(self, push: str) -> DeadLetter:
        """Return one dead push, with what it holds. Raises UserError when it is not dead."""
        task_of_push(text("push", push))
        found = await DeadLetters(self._open).find(Selection(pushes=frozenset([push])))
        if not found.letters:
            raise UserError(
                f"there is no dead push {push}: it has not died, or was retried or purged"
            )
        dead = found.letters[-1].dead
        return msgspec.structs.replace(_letter(dead), push=_content(dead))

    async def retry_dead(
        self,
        pushes: Iterable[str] | str = (),
        *,
        task: str = "",
        reason: str = "",
        older_than: Age = 0,
        newer_than: Age = 0,
        limit: int = 0,
        all_there_are: bool = False,
    ) -> list[Retried]:
        """Send dead pushes again, in a new task for each of their tasks; return what became of it.

        Raises BadInput when nothing chooses them, unless it is to be all there are.
        """
        _refuse_unbounded(pushes, task, reason, older_than, newer_than, all_there_are)
        selection = await self._chosen(pushes, task, reason, older_than, newer_than, limit)
        letters = DeadLetters(self._open)
        return await DeadRetry(self._open, self._settings, letters).run(selection)

    async def purge_dead(
        self,
        pushes: Iterable[str] | str = (),
        *,
        task: str = "",
        reason: str = "",
        older_than: Age = 0,
        newer_than: Age = 0,
        limit: int = 0,
        all_there_are: bool = False,
    ) -> int:
        """Delete dead pushes for good; return how many. Raises BadInput as `retry_dead` does."""
        _refuse_unbounded(pushes, task, reason, older_than, newer_than, all_there_are)
        selection = await self._chosen(pushes, task, reason, older_than, newer_than, limit)
        return await DeadLetters(self._open).purge(selection)

    async def _chosen(
        self,
        pushes: Iterable[str] | str,
        task: str,
        reason: str,
        older_than: Age,
        newer_than: Age,
        limit: int,
    ) -> Selection:
        older_s, newer_s = (
            seconds("older_than", older_than, 0),
            seconds("newer_than", newer_than, 0),
        )
        if older_s and newer_s and older_s >= newer_s:
            raise BadInput("older_than is not below newer_than: nothing is dead for such a time")
        return await chosen(
            self._open,
            task=text("task", task),
            pushes=texts("pushes", pushes),
            reason=text("reason", reason),
            older_than_ms=round(1000 * older_s),
            newer_than_ms=round(1000 * newer_s),
            limit=whole("limit", limit, 0),
        )


def _refuse_unbounded(*choice: Any) -> None:
    if not any(choice):
        raise BadInput(
            "say which dead pushes: give pushes, task, reason, older_than or newer_than; or "
            "all_there_are=True"
        )


def _letter(dead: DeadPush) -> DeadLetter:
    return DeadLetter(
        push_id(dead),
        dead.task_id,
        dead.seq,
        dead.sink,
        dead.attempt,
        dead.reason,
        dead.died_at_ms,
    )


def _content(dead: DeadPush) -> Push | None:
    try:
        return decode(dead.body)
    except (MalformedPush, UnknownFormat):
        return None
